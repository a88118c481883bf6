#include "model/lint/lint.hpp"

#include <algorithm>
#include <array>

#include "base/diagnostic.hpp"
#include "model/families/hf_config.hpp"
#include "model/lint/run_view.hpp"
#include "model/releases.hpp"

namespace zeroplan {

namespace rules {

std::optional<std::int64_t> Run::said_integer(ScenarioKey key) const {
  const ExplicitValue* said = scenario.find(key);
  return said == nullptr ? std::nullopt : std::optional(said->value.as_integer());
}

std::optional<std::string> Run::said_text(ScenarioKey key) const {
  const ExplicitValue* said = scenario.find(key);
  if (said == nullptr || !said->value.is_string()) return std::nullopt;
  return said->value.as_string();
}

std::string Run::format() const {
  const std::string in_file = file.model_format();
  if (!in_file.empty()) return in_file;
  return said_text(ScenarioKey::precision).value_or("");
}

std::optional<std::int64_t> Run::size(Knob knob) const {
  return file.config().is_auto(knob) && plan != nullptr ? plan->ds_config.integer(knob)
                                                        : file.integer(knob);
}

}  // namespace rules

namespace {

std::array<std::span<const rules::RunRule>, 5> groups() {
  return {rules::hardware_rules(),
          rules::model_rules(),
          rules::script_rules(),
          rules::plan_rules(),
          rules::trainer_rules()};
}

// What holds without DeepSpeed, too.
bool holds(std::string_view code, bool deepspeed) {
  return deepspeed || code.starts_with("trl-") || code == "out-of-memory" ||
         code == "offload-unneeded" || code == "omp-threads" || code == "bf16-gpu" ||
         code == "fp16-for-bf16-model";
}

bool says_any_workload(const Scenario& scenario) {
  return std::any_of(kScenarioKeys.begin(), kScenarioKeys.end(), [&](const ScenarioKeyInfo& row) {
    const bool about_the_script = row.pointer.starts_with("/workload/") &&
                                  row.key != ScenarioKey::frontend &&
                                  !row.pointer.ends_with("_parallel");
    return about_the_script && scenario.find(row.key) != nullptr;
  });
}

// Of the transformers that the scenario names.
ExpertLayout experts_of(const Scenario& scenario) {
  const ExplicitValue* said = scenario.find(ScenarioKey::transformers_version);
  const std::optional<Version> release =
      said != nullptr ? parse_version(said->value.as_string()) : std::nullopt;
  return release && acts(ReleaseRule::fuses_experts, *release) ? ExpertLayout::fused
                                                               : ExpertLayout::modules;
}

// What is known of the run, owned.
class Facts {
 public:
  explicit Facts(const LintRequest& request) : request_(request) {
    const Scenario& scenario = request.scenario;
    if (const ExplicitValue* said = scenario.find(ScenarioKey::model)) {
      model_ =
          std::make_shared<const Model>(load_model(said->value,
                                                   said->origin.file,
                                                   said->origin.pointer,
                                                   model_use_of(scenario, experts_of(scenario))));
    }
    profile_ = read_profile_of(scenario);
    if (scenario.find(ScenarioKey::cluster) != nullptr) {
      cluster_ = read_cluster_of(scenario, profile_.get());
    }
    read_release();
    read_style();
    read_degrees();
    make_plan();
  }

  const RuleContext& context() const { return context_; }
  bool style_was_said() const { return style_was_said_; }
  Phrase why_no_plan() const {
    if (!refusal_) return "";
    return phrase("expected {}, got {}", refusal_->expected, refusal_->got);
  }

  Needs known() const {
    Needs known;
    const auto learn = [&](bool is_known, Needs need) {
      if (is_known) known = known | need;
    };
    learn(context_.ranks_known, kNeedsRanks);
    learn(cluster_ != nullptr, kNeedsCluster);
    learn(model_ != nullptr, kNeedsModel);
    learn(says_any_workload(request_.scenario), kNeedsWorkload);
    learn(prediction_.has_value(), kNeedsPlan);
    learn(request_.task.has_value(), kNeedsTask);
    learn(request_.launcher.has_value(), kNeedsLauncher);
    learn(release_.has_value(), kNeedsRelease);
    return known;
  }

  rules::Run run(const rules::View& view) const {
    return {view,
            request_.scenario,
            cluster_.get(),
            model_.get(),
            plan_ ? &*plan_ : nullptr,
            prediction_ ? &*prediction_ : nullptr,
            refusal_ ? &*refusal_ : nullptr,
            request_.result_of,
            request_.launcher,
            request_.task,
            release_,
            style_was_said_};
  }

 private:
  void read_release() {
    context_.release = kNewestJudgedDeepSpeed;
    const ExplicitValue* said = request_.scenario.find(ScenarioKey::deepspeed_version);
    if (said == nullptr) return;
    release_ = parse_version(said->value.as_string());
    if (!release_) {
      throw InputError({said->origin.file,
                        said->origin.pointer,
                        "a version such as 0.19.6",
                        in_quotes(said->value.as_string()),
                        ""});
    }
    context_.deepspeed = nearest_described(*release_).version;
    context_.release = *release_;
  }

  void read_style() {
    const ExplicitValue* said = request_.scenario.find(ScenarioKey::frontend);
    style_was_said_ = said != nullptr;
    const auto& values = request_.config.values();
    const bool any_auto = std::any_of(values.begin(), values.end(), [](const auto& entry) {
      return std::holds_alternative<Auto>(entry.second);
    });
    const bool trainer = style_was_said_ ? said->value.as_string() == "hf-trainer" : any_auto;
    context_.style = trainer ? ConfigStyle::hf_trainer : ConfigStyle::native;
  }

  void read_degrees() {
    const auto degree = [&](ScenarioKey key) {
      const ExplicitValue* said = request_.scenario.find(key);
      return said == nullptr ? std::int64_t{1} : said->value.as_integer();
    };
    context_.tensor_parallel = degree(ScenarioKey::tensor_parallel);
    context_.sequence_parallel = degree(ScenarioKey::sequence_parallel);
    context_.pipeline_parallel = degree(ScenarioKey::pipeline_parallel);
    const std::int64_t product =
        context_.tensor_parallel * context_.sequence_parallel * context_.pipeline_parallel;
    context_.ranks_known = request_.gpus.has_value() || cluster_ != nullptr;
    context_.world_size = request_.gpus ? *request_.gpus
                          : cluster_    ? cluster_->total_gpus()
                                        : product;
    if (context_.world_size % product != 0) {
      throw InputError({"command line",
                        request_.gpus ? "--gpus" : "--cluster",
                        "a number of GPUs that the degrees of parallelism divide",
                        phrase("{} for {}", context_.world_size, product),
                        ""});
    }
  }

  void make_plan() {
    if (model_ == nullptr || cluster_ == nullptr) return;
    try {
      Scenario scenario = request_.scenario;
      Prepared prepared = prepare(scenario);
      prepared.ds_config = std::make_shared<const DsConfig>(request_.config);
      if (!style_was_said_) {
        const bool trainer = context_.style == ConfigStyle::hf_trainer;
        scenario.set(ScenarioKey::frontend,
                     trainer ? "hf-trainer" : "native",
                     {"command line", "--frontend"});
      }
      plan_ = resolve(scenario, prepared);
      prediction_ = request_.result_of(*plan_);
      if (prediction_->fits || !request_.add_change) return;
      scenario.set(ScenarioKey::ds_config, emit(request_.config), {"FILE", ""});
      request_.add_change(scenario, *prediction_);
    } catch (const InputError& error) {
      refusal_ = error.diagnostics().front();
    }
  }

  const LintRequest& request_;
  RuleContext context_;
  bool style_was_said_ = false;
  std::shared_ptr<const Model> model_;
  std::shared_ptr<const Profile> profile_;
  std::shared_ptr<const Cluster> cluster_;
  std::optional<Version> release_;
  std::optional<Plan> plan_;
  std::optional<StepResult> prediction_;
  std::optional<Diagnostic> refusal_;
};

}  // namespace

LintReport lint(const LintRequest& request) {
  const Facts facts(request);
  LintReport report;
  report.style = facts.context().style;
  report.style_was_said = facts.style_was_said();
  const Needs known = facts.known();
  const rules::View view(request.config, facts.context());
  const rules::Run run = facts.run(view);
  const std::string engine = run.said_text(ScenarioKey::engine).value_or("");
  const bool deepspeed = engine != "fsdp" && engine != "ddp";
  if (deepspeed) report.findings = all_findings(request.config, facts.context());
  for (const auto group : groups()) {
    for (const rules::RunRule& rule : group) {
      if (!known.contains(rule.info.needs) || !holds(rule.info.code, deepspeed)) continue;
      rules::Report findings(rule.info, report.findings);
      rule.check(run, findings);
    }
  }
  for (const RuleInfo& rule : lint_rules()) {
    const Needs missing{static_cast<std::uint8_t>(rule.needs.bits & ~known.bits)};
    if (missing.bits == 0 || !holds(rule.code, deepspeed)) continue;
    const bool plan = missing.contains(kNeedsPlan);
    report.skipped.push_back({std::string(rule.code), missing, plan ? facts.why_no_plan() : ""});
  }
  tidy(report.findings);
  return report;
}

std::vector<RuleInfo> lint_rules() {
  std::vector<RuleInfo> infos = knob_rules();
  for (const auto group : groups()) {
    for (const rules::RunRule& rule : group) infos.push_back(rule.info);
  }
  return infos;
}

}  // namespace zeroplan
