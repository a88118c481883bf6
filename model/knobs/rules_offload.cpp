// Rules about offload to host memory; see rules.hpp.
#include <algorithm>
#include <array>

#include "model/knobs/rule_view.hpp"

namespace zeroplan::rules {
namespace {

bool offloads_optimizer(const View& view) {
  return view.stage() > 0 && view.is_offloaded(Knob::offload_optimizer_device);
}

void offload_ratio(const View& view, Report& report) {
  if (view.real(Knob::offload_optimizer_ratio).value_or(1.0) < 1.0 && view.stage() != 3) {
    report.at(Knob::offload_optimizer_ratio);
  }
}

void offload_param_stage(const View& view, Report& report) {
  if (view.stage() == 3 || !view.is_offloaded(Knob::offload_param_device)) return;
  report.at(pointer_of(Knob::offload_param_device), {std::to_string(view.stage())});
}

void offload_without_zero(const View& view, Report& report) {
  if (view.stage() != 0 || view.config().is_auto(Knob::zero_stage)) return;
  if (view.is_offloaded(Knob::offload_optimizer_device)) report.at(Knob::offload_optimizer_device);
}

void parameters_alone(const View& view, Report& report) {
  if (view.stage() != 3 || !view.is_offloaded(Knob::offload_param_device)) return;
  if (view.config().is_auto(Knob::offload_optimizer_device)) return;
  if (!view.is_offloaded(Knob::offload_optimizer_device)) report.at(Knob::offload_param_device);
}

void unpinned(const View& view, Report& report) {
  constexpr std::array kPairs = {
      std::pair{Knob::offload_param_device, Knob::offload_param_pin_memory},
      std::pair{Knob::offload_optimizer_device, Knob::offload_optimizer_pin_memory}};
  for (const auto& [device, pinned] : kPairs) {
    const bool acts = device == Knob::offload_param_device ? view.stage() == 3 : view.stage() > 0;
    if (!acts || view.text(device) != "cpu" || !view.config().is_set(pinned)) continue;
    if (!view.config().boolean(pinned).value_or(true)) report.at(pinned);
  }
}

// What _configure_basic_optimizer builds as a CPU optimizer of DeepSpeed.
void slow_cpu_optimizer(const View& view, Report& report) {
  const std::string name = view.optimizer();
  if (!offloads_optimizer(view) || name.empty()) return;
  constexpr std::array<std::string_view, 4> kOnCpu = {"adam", "adamw", "adagrad", "lion"};
  if (std::find(kOnCpu.begin(), kOnCpu.end(), name) == kOnCpu.end()) {
    report.at(Knob::optimizer_type, {view.text(Knob::optimizer_type)}, 0);
  } else if (view.is_on(Knob::optimizer_torch_adam) && name.starts_with("adam")) {
    report.at(Knob::optimizer_torch_adam, {}, 1);
  }
}

void client_optimizer(const View& view, Report& report) {
  if (!offloads_optimizer(view) || !view.optimizer().empty()) return;
  if (view.context().style == ConfigStyle::hf_trainer) return;  // accelerate replaces it
  if (view.config().boolean(Knob::zero_force_ds_cpu_optimizer).value_or(true)) {
    report.at(Knob::offload_optimizer_device);
  }
}

void any_cpu_optimizer(const View& view, Report& report) {
  if (!offloads_optimizer(view) || !view.optimizer().empty()) return;
  if (!view.config().boolean(Knob::zero_force_ds_cpu_optimizer).value_or(true)) {
    report.at(Knob::zero_force_ds_cpu_optimizer);
  }
}

void twin_flow_optimizer(const View& view, Report& report) {
  if (view.stage() != 3 || view.real(Knob::offload_optimizer_ratio).value_or(1.0) >= 1.0) return;
  if (!view.is_offloaded(Knob::offload_optimizer_device)) return;
  const std::string name = view.optimizer();
  const bool adam = name.empty() || name == "adam" || name == "adamw";
  if (adam && !view.is_on(Knob::optimizer_torch_adam)) return;
  report.at(Knob::offload_optimizer_ratio);
}

void super_offload_clipping(const View& view, Report& report) {
  if (view.stage() != 3 || !view.is_on(Knob::offload_optimizer_super_offload)) return;
  const double norm = view.real(Knob::gradient_clipping).value_or(1.0);
  if (norm == 0.0) return;
  report.at(Knob::gradient_clipping,
            {Json(norm).dump()},
            view.config().is_set(Knob::gradient_clipping) ? 0 : 1);
}

void contiguous_forced(const View& view, Report& report) {
  if (!offloads_optimizer(view) || view.stage() == 3) return;
  if (!view.config().boolean(Knob::contiguous_gradients).value_or(true)) {
    report.at(Knob::contiguous_gradients);
  }
}

void round_robin(const View& view, Report& report) {
  if (!offloads_optimizer(view) || view.stage() != 2 || view.data_parallel() <= 1) return;
  if (!view.is_on(Knob::round_robin_gradients)) report.at(Knob::round_robin_gradients);
}

constexpr std::array kOffloadRules = {
    Rule{{.code = "offload-ratio-stage",
          .severity = Severity::error,
          .summary = "offload_optimizer.ratio is below 1 only with stage 3",
          .cost = "DeepSpeed stops",
          .texts = {{"a ratio below 1 works only with stage 3",
                     "set the ratio to 1 or the stage to 3"}},
          .source = "runtime/zero/config.py:offload_ratio_check"},
         offload_ratio},
    Rule{{.code = "offload-param-stage",
          .summary = "offload_param is used with stage 3",
          .cost = "parameters stay on the GPU",
          .texts = {{"offload_param does nothing at stage {0}",
                     "set the stage to 3 or remove offload_param"}},
          .source = "runtime/engine.py:_configure_zero_optimizer"},
         offload_param_stage},
    Rule{{.code = "offload-without-zero",
          .summary = "offload_optimizer is used with a ZeRO stage",
          .cost = "optimizer states stay on the GPU",
          .texts = {{"offload_optimizer does nothing at stage 0", "set the stage to 1, 2 or 3"}},
          .source = "runtime/engine.py:zero_use_cpu_optimizer"},
         offload_without_zero},
    Rule{
        {.code = "parameters-offloaded-alone",
         .severity = Severity::info,
         .use = RuleUse::advice,
         .summary = "parameters are offloaded after the optimizer, which is larger",
         .cost = "every pass copies the weights from the host while six times their size, the "
                 "optimizer's states, stays on the GPU (frozen weights excepted)",
         .texts =
             {{"parameters are offloaded and the optimizer's states, six times as large, are "
               "not",
               "offload the optimizer first; keep this where zeroplan fit finds it faster, or most "
               "weights are frozen"}},
         .source = "runtime/zero/offload_config.py:DeepSpeedZeroOffloadParamConfig"},
        parameters_alone},
    Rule{{.code = "unpinned-offload",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .summary = "offloaded memory is pinned where the host allows it",
          .cost = "copies between host and GPU block, and go through a staging buffer",
          .texts = {{"pin_memory is false: copies block the host and are staged",
                     "set it to true unless host memory is short or cannot be locked (WSL)"}},
          .source = "runtime/zero/offload_config.py:pin_memory"},
         unpinned},
    Rule{{.code = "slow-cpu-optimizer",
          .use = RuleUse::advice,
          .summary = "an offloaded optimizer is one of DeepSpeed's for the CPU",
          .cost = "the step runs in torch on the CPU, several times slower than CPU Adam",
          .texts = {{"{0} has no version for the CPU in DeepSpeed: its step runs in torch",
                     "use AdamW, Adagrad or Lion with offload"},
                    {"torch_adam takes the place of DeepSpeed's CPU Adam", "remove torch_adam"}},
          .source = "runtime/engine.py:_configure_basic_optimizer"},
         slow_cpu_optimizer},
    Rule{{.code = "client-optimizer-offload",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .summary = "with offload the file names the optimizer",
          .cost = "an optimizer from the script that is not DeepSpeedCPUAdam stops the run: \"You "
                  "are using ZeRO-Offload with a client provided optimizer\"",
          .texts = {{"the file has no optimizer: with offload the script must bring "
                     "DeepSpeedCPUAdam",
                     "add \"optimizer\": {\"type\": \"AdamW\"} or build DeepSpeedCPUAdam"}},
          .source = "runtime/engine.py:_configure_optimizer"},
         client_optimizer},
    Rule{{.code = "any-cpu-optimizer",
          .use = RuleUse::advice,
          .summary = "zero_force_ds_cpu_optimizer is not switched off",
          .cost = "a torch optimizer steps on the CPU, several times slower than CPU Adam",
          .texts = {{"with zero_force_ds_cpu_optimizer false any optimizer may step on the CPU",
                     "remove it, and name AdamW in the file"}},
          .source = "runtime/engine.py:_configure_optimizer"},
         any_cpu_optimizer},
    Rule{{.code = "twin-flow-optimizer",
          .severity = Severity::error,
          .summary = "a ratio below 1 goes with DeepSpeed's CPU Adam",
          .cost = "DeepSpeed stops: \"Hybrid Optimizer Only Supports DeepSpeedCPUAdam\"",
          .texts = {{"a ratio below 1 needs DeepSpeed's CPU Adam",
                     "use Adam or AdamW without torch_adam, or a ratio of 1"}},
          .source = "runtime/zero/stage3.py:DeepSpeedZeroOptimizer_Stage3.__init__"},
         twin_flow_optimizer},
    Rule{{.code = "super-offload-clipping",
          .use = RuleUse::advice,
          .summary = "SuperOffload runs without gradient clipping",
          .cost = "the CPU step waits for the whole backward pass: nothing overlaps",
          .texts = {{"gradient_clipping {0} makes SuperOffload's steps synchronous",
                     "set gradient_clipping to 0, or do without super_offload"},
                    {"gradient_clipping is {0} by default and makes SuperOffload's steps "
                     "synchronous",
                     "set gradient_clipping to 0, or do without super_offload"}},
          .source = "runtime/superoffload/superoffload_stage3.py:SuperOffloadOptimizer_Stage3"},
         super_offload_clipping},
    Rule{{.code = "contiguous-forced",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .summary = "with offload at stages 1 and 2 contiguous_gradients is not false",
          .cost = "the memory that false was to save is used all the same",
          .texts = {{"offload at stages 1 and 2 switches contiguous_gradients on", "remove it"}},
          .source = "runtime/zero/stage_1_and_2.py:DeepSpeedZeroOptimizer.__init__"},
         contiguous_forced},
    Rule{
        {.code = "one-rank-copies",
         .severity = Severity::info,
         .use = RuleUse::advice,
         .needs = kNeedsRanks,
         .summary = "stage 2 with offload on several GPUs deals gradients out in turn",
         .cost =
             "partitions are contiguous: in the backward pass one GPU after the other copies to "
             "the host while the rest wait",
         .texts = {{"without round_robin_gradients one rank copies gradients to the host at a time",
                    "set round_robin_gradients to true"}},
         .source = "runtime/zero/stage_1_and_2.py:_round_robin_reorder"},
        round_robin},
};

}  // namespace

std::span<const Rule> offload_rules() { return kOffloadRules; }

}  // namespace zeroplan::rules
