// Which releases run the plan, and what of the model is theirs.
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "model/engine/fetch_schedule.hpp"
#include "model/plan/release_pairs.hpp"
#include "model/plan/resolver.hpp"
#include "model/plan/software_sets.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

std::optional<Version> said_release(Resolver& r, ScenarioKey key, const Version& example) {
  const auto said = r.text(key);
  if (!said) return std::nullopt;
  const auto parsed = parse_version(*said);
  if (!parsed)
    r.problem(r.origin(key), phrase("a version such as {}", to_string(example)), in_quotes(*said));
  return parsed.value_or(example);
}

}  // namespace

// What nobody says is taken from the releases that were tried together (software_sets.hpp).
void resolve_software(Resolver& r) {
  Software& software = r.plan.software;
  const Model& model = *r.plan.model;
  const SoftwareSet& newest = software_for(model, nullptr, {});
  const SoftwareSaid said{said_release(r, ScenarioKey::deepspeed_version, newest.deepspeed),
                          said_release(r, ScenarioKey::torch_version, newest.torch),
                          said_release(r, ScenarioKey::transformers_version, newest.transformers)};
  const bool embedded = r.plan.workload.engine == TrainingEngine::embedded;
  const SoftwareSet& set = embedded ? newest : software_for(model, &r.plan.cluster.gpu, said);
  software.deepspeed_release = said.deepspeed.value_or(set.deepspeed);
  software.torch = said.torch.value_or(set.torch);
  software.transformers = said.transformers.value_or(set.transformers);
  software.accelerate = said_release(r, ScenarioKey::accelerate_version, {1, 15, 0})
                            .value_or(usual_accelerate(software.transformers));
  const ExplicitValue* torch = r.scenario.find(ScenarioKey::torch_version);
  const bool reported = torch != nullptr && torch->origin.file == kReportedOrigin;
  software.torch_said = torch != nullptr && !reported;
  const DeepSpeedChoice choice = nearest_described(software.deepspeed_release);
  software.deepspeed = choice.version;
  if (!choice.note.empty()) r.assume(choice.note);
  if (embedded) {
    r.assume(phrase("the embedded runtime follows the policies of DeepSpeed {}",
                    to_string(software.deepspeed_release)));
    return;
  }
  const bool deepspeed = runs_deepspeed(r.plan.workload);
  const bool all_said = said.torch && said.transformers && (said.deepspeed || !deepspeed);
  if (!all_said) {
    const Phrase of_engine =
        deepspeed ? phrase("DeepSpeed {}, ", to_string(software.deepspeed_release)) : "";
    r.assume(phrase("software: {}torch {}, transformers {}",
                    of_engine,
                    to_string(software.torch),
                    to_string(software.transformers)));
  }
  // A measurement ran, whatever is known of releases that its source does not state.
  if (reported || r.text(ScenarioKey::implementation).value_or("hf") != "hf") return;
  SoftwareReleases releases{std::nullopt, software.torch, software.transformers};
  if (deepspeed) releases.deepspeed = software.deepspeed_release;
  r.plan.software.conflicts = software_conflicts(model, r.plan.cluster.gpu, releases);
  for (const Phrase& conflict : r.plan.software.conflicts) r.warn(conflict);
}

bool trainer_asks_for_fused(const Software& software) {
  return software.transformers_act(ReleaseRule::trainer_asks_for_fused) &&
         software.torch_acts(ReleaseRule::trusts_fused_adam);
}

// Releases that stop in the first of several micro-steps refuse accumulation, whoever chose it;
// without it they run.
void judge_accumulation(Resolver& r) {
  const Workload& workload = r.plan.workload;
  if (!refuses_accumulation(workload, r.plan.software)) return;
  const std::string deepspeed = to_string(r.plan.software.deepspeed_release);
  const std::string transformers = to_string(r.plan.software.transformers);
  const std::int64_t steps = workload.gradient_accumulation_steps;
  if (steps == 1) {
    r.assume(
        phrase("no accumulation with DeepSpeed {} and transformers {}, which stop in the first of "
               "several micro-steps (no_sync)",
               deepspeed,
               transformers));
    return;
  }
  const Knob knob = Knob::gradient_accumulation_steps;
  const bool in_file = r.ds_config_is_file &&
                       !r.integer(ScenarioKey::gradient_accumulation_steps) &&
                       r.plan.ds_config.integer(knob).has_value();
  r.problem(in_file ? Origin{r.ds_config_file, std::string(pointer_of(knob))}
                    : r.origin(ScenarioKey::gradient_accumulation_steps),
            phrase("1 with DeepSpeed {} and transformers {}, which stop in the first of several "
                   "micro-steps (no_sync)",
                   deepspeed,
                   transformers),
            std::to_string(steps),
            "transformers 4.47.1 or newer, or DeepSpeed 0.15.4");
}

// At stage 3 the format of adapters that peft widened stops a run: beside a value model that is
// trained, too, while the engine is made (utils.py:defragment asserts one format), and beside
// persistent weights after the first step in releases that gather both into buffers of one format.
void judge_formats(Resolver& r) {
  const EngineConfig& engine = r.plan.engine;
  const Workload& workload = r.plan.workload;
  if (workload.method == Method::full || workload.lora.dtype == workload.precision) return;
  if (!runs_deepspeed(workload) || engine.stage != 3 || engine.embedded) return;
  FetchModel fetched;
  fetched.parameters = r.plan.engine_parameters;
  mark_persistent(fetched, engine);
  const auto some = [&](bool own_format, const std::vector<bool>& of) {
    for (std::size_t p = 0; p < of.size(); ++p) {
      const DType format = fetched.parameters[p].own_dtype.value_or(engine.model_dtype);
      if (of[p] && (format != engine.model_dtype) == own_format) return true;
    }
    return false;
  };
  const auto mixed = [&](const std::vector<bool>& of) { return some(true, of) && some(false, of); };
  std::vector<bool> trained;
  for (const EngineParameter& parameter : fetched.parameters) {
    trained.push_back(parameter.trainable);
  }
  const Origin stage{r.ds_config_file, std::string(pointer_of(Knob::zero_stage))};
  const char* const hint =
      "stage 2, or adapters in the model's format "
      "(autocast_adapter_dtype=False)";
  const std::string deepspeed = to_string(engine.release);
  if (engine.offload_parameter.device == OffloadDevice::none && mixed(trained)) {
    r.problem(stage,
              phrase("1 or 2: DeepSpeed {} leaves peft's fp32 adapters as they are, and stops in "
                     "defragment() beside a value model of another format",
                     deepspeed),
              "3",
              hint);
  } else if (partition_ranks(engine) > 1 && mixed(fetched.persistent) &&
             engine.acts(ReleaseRule::gathers_persistent_in_one_format)) {
    r.problem(stage,
              phrase("1 or 2: the first step of DeepSpeed {} stops where fp32 adapters and "
                     "persistent weights are gathered together (\"output tensor must have the same "
                     "type\")",
                     deepspeed),
              "3",
              hint);
  }
}

// DeepSpeed 0.19.8 has a partition in fp32 (sums_in_fp32_partition), and casts what is reduced to
// it. Rehearsed with Qwen2.5-0.5B on eight ranks: 494 MB more than 0.19.6 with one micro-step,
// which is both, and 222 MB with four.
void warn_of_release(Resolver& r) {
  judge_accumulation(r);
  judge_formats(r);
  const EngineConfig& engine = r.plan.engine;
  const bool sums = runs_deepspeed(r.plan.workload) && engine.stage == 2 && !engine.embedded &&
                    engine.model_dtype != DType::fp32 &&
                    engine.gradient_accumulation_dtype == DType::fp32 &&
                    engine.offload_optimizer.device == OffloadDevice::none &&
                    engine.acts(ReleaseRule::sums_in_fp32_partition);
  if (!sums) return;
  Elements trained;
  for (const EngineParameter& parameter : r.plan.engine_parameters) {
    if (parameter.trainable) trained += parameter.numel;
  }
  const Bytes more = trained / partition_ranks(engine) * DType::fp32 * 2;
  r.warn(
      phrase("DeepSpeed {} sums gradients of stage 2 in fp32 with this grad_accum_dtype: "
             "up to {} more GPU memory than predicted",
             to_string(engine.release),
             fmt::format("{:.2f} GiB", more.gib())));
}

// transformers' own classes hold their experts as the release does; others' keep a list of modules.
void take_experts(Resolver& r, const Prepared& prepared) {
  const bool own_classes = r.text(ScenarioKey::implementation).value_or("hf") == "hf" &&
                           r.plan.workload.engine != TrainingEngine::embedded;
  if (prepared.model_with_fused_experts != nullptr && own_classes &&
      r.plan.software.transformers_act(ReleaseRule::fuses_experts)) {
    r.plan.model = prepared.model_with_fused_experts;
  }
}

}  // namespace zeroplan
