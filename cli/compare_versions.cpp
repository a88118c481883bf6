#include "cli/compare_versions.hpp"

#include <algorithm>
#include <array>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostic.hpp"
#include "cli/compare_versions_text.hpp"
#include "model/release_table.hpp"
#include "tuner/compare_versions.hpp"
#include "tuner/fit.hpp"
#include "tuner/fit_question.hpp"
#include "tuner/fit_ranking.hpp"

namespace zeroplan {
namespace {

[[noreturn]] void no_sets(const std::string& text) {
  throw InputError(
      {kCommandLine,
       "--compare-versions",
       "two or more sets DEEPSPEED/TORCH/TRANSFORMERS with commas between them, or all",
       in_quotes(text),
       "--compare-versions 0.16.4/2.6/4.50,0.19.6/2.11/5.17"});
}

// "0.16.4/2.6/4.50,0.19.6/2.11/5.17" in the order given; nothing or "all": those of the table.
std::vector<ReleaseSet> sets_of(const Arguments& arguments) {
  const std::string text = arguments.text("compare-versions").value_or("all");
  if (text.empty() || text == "all") return usual_release_sets();
  std::vector<ReleaseSet> sets;
  for (const std::string& part : parts_of(text, ',')) {
    std::array<Version, 3> releases;
    const std::vector<std::string> said = parts_of(part, '/');
    if (said.size() != releases.size()) no_sets(text);
    for (std::size_t i = 0; i < said.size(); ++i) {
      const auto parsed = parse_version(said[i]);
      if (!parsed) no_sets(text);
      releases[i] = *parsed;
    }
    sets.push_back({releases[0], releases[1], releases[2]});
  }
  if (sets.size() < 2) no_sets(text);
  return sets;
}

// Each set has releases of its own: others that were said would contradict them.
void reject_beside(const Arguments& arguments, const Scenario& scenario) {
  for (const char* flag :
       {"batch", "clusters", "goal", "output", "trace", "memory-snapshot", "rank"}) {
    if (!arguments.has(flag)) continue;
    throw InputError(
        {kCommandLine, "--" + std::string(flag), "no --compare-versions beside it", "both", ""});
  }
  for (const ScenarioKey key : {ScenarioKey::deepspeed_version,
                                ScenarioKey::torch_version,
                                ScenarioKey::transformers_version}) {
    const ExplicitValue* said = scenario.find(key);
    if (said == nullptr || said->origin.file != kCommandLine) continue;
    throw InputError({kCommandLine,
                      std::string(info(key).flag),
                      "no --compare-versions beside it",
                      "both",
                      "the sets name all three releases"});
  }
}

Json release_json(const ReleaseSet& set) {
  return Json::object({{"deepspeed", to_string(set.deepspeed)},
                       {"torch", to_string(set.torch)},
                       {"transformers", to_string(set.transformers)}});
}

Json effect_json(const ReleaseEffect& effect) {
  Json json = Json::object({});
  if (effect.rule) {
    const ReleaseRow& row = release_row(*effect.rule);
    json["package"] = display_name(row.package);
    json["release"] = to_string(effect.begins ? row.since : row.until);
    json["begins"] = effect.begins;
    json["does"] = row.does;
    json["source"] = row.source;
  } else {
    json["package"] = display_name(Package::deepspeed);
    json["key"] = pointer_of(effect.changed->knob);
    json["older_default"] = parse_json(effect.changed->older, "default").root;
    json["newer_default"] = parse_json(effect.changed->newer, "default").root;
  }
  json["gpu_memory"] = effect.gpu_memory.count();
  json["host_memory"] = effect.host_memory.count();
  json["step_seconds"] = effect.step_time.value();
  return json;
}

Json set_json(const ComparedSet& set) {
  Json json = release_json(set.releases);
  const StepResult& result = set.result;
  json["fits"] = result.fits;
  json["fit_probability"] = result.fit_probability;
  json["gpu_memory"] = result.gpu.peak_total.count();
  json["gpu_allocated"] = result.gpu.peak_allocated.count();
  json["host_memory"] = result.host.peak.count();
  json["step_seconds"] = result.step.total.value();
  json["tokens_per_second_per_gpu"] = result.step.tokens_per_second_per_gpu;
  json["differences"] = static_cast<std::int64_t>(set.differences);
  Json effects = Json::array();
  for (const ReleaseEffect& effect : set.effects) effects.push_back(effect_json(effect));
  json["effects"] = effects;
  Json warnings = Json::array();
  for (const Phrase& warning : set.plan.warnings) warnings.push_back(warning.english());
  json["warnings"] = warnings;
  return json;
}

void print(const Arguments& arguments,
           const ComparedVersions& compared,
           const std::string& strategy,
           Streams streams) {
  if (!arguments.json) {
    streams.out << compare_versions_text(compared, strategy, Translation(arguments.language));
    return;
  }
  Json document = Json::object({{"schema", "zeroplan.versions/1"}});
  document["strategy"] = strategy.empty() ? Json() : Json(strategy);
  document["ds_config"] = emit(written_ds_config(compared.sets.back().plan));
  Json sets = Json::array();
  for (const ComparedSet& set : compared.sets) sets.push_back(set_json(set));
  document["sets"] = sets;
  if (!compared.missing.empty()) document["left_out"] = compared.missing.english();
  streams.out << document.dump(2) << "\n";
}

}  // namespace

int compare_fit(const Arguments& arguments,
                const Scenario& scenario,
                const PredictOptions& options,
                Streams streams) {
  reject_beside(arguments, scenario);
  const std::vector<ReleaseSet> sets = sets_of(arguments);
  const Scenario newest = under(scenario, sets.back());
  const FitAnswer answer = fit(newest, options);
  const StrategyResult& chosen =
      answer.recommended ? answer.strategies[*answer.recommended] : nearest_of(answer.strategies);
  const Question question = ask(answer.needs.any() ? with_packages(newest, answer.needs) : newest);
  const Workload& workload = chosen.plan.workload;
  const AskedStrategy asked = ask_strategy(
      question, chosen.strategy, {workload.micro_batch_size, workload.gradient_accumulation_steps});
  print(arguments,
        compare_versions(asked.scenario, asked.prepared, sets, options),
        describe(chosen.strategy),
        streams);
  return answer.recommended ? kDone : kAnswerIsNo;
}

int compare_simulate(const Arguments& arguments, const PredictOptions& options, Streams streams) {
  const Scenario scenario = scenario_of(arguments);
  reject_beside(arguments, scenario);
  const ComparedVersions compared =
      compare_versions(scenario, prepare(scenario), sets_of(arguments), options);
  print(arguments, compared, "", streams);
  return arguments.has("require-fit") && !compared.sets.back().result.fits ? kAnswerIsNo : kDone;
}

}  // namespace zeroplan
