// Rules about optimizer, scheduler and activation checkpointing; see rules.hpp.
#include <algorithm>
#include <array>

#include "base/diagnostic.hpp"
#include "model/knobs/rule_view.hpp"

namespace zeroplan::rules {
namespace {

template <std::size_t Size>
bool is_among(const std::array<std::string_view, Size>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// --- optimizer

// Compared in lower case.  Source: deepspeed/runtime/config.py:DEEPSPEED_OPTIMIZERS.
constexpr std::array<std::string_view, 12> kOwnOptimizers = {"Adam",
                                                             "AdamW",
                                                             "Adagrad",
                                                             "Lamb",
                                                             "OneBitAdam",
                                                             "OneBitLamb",
                                                             "ZeroOneAdam",
                                                             "MuAdam",
                                                             "MuAdamW",
                                                             "MuSGD",
                                                             "Lion",
                                                             "Muon"};
// Classes of torch.optim, compared as they are.
constexpr std::array<std::string_view, 15> kTorchOptimizers = {"ASGD",
                                                               "Adadelta",
                                                               "Adafactor",
                                                               "Adagrad",
                                                               "Adam",
                                                               "AdamW",
                                                               "Adamax",
                                                               "LBFGS",
                                                               "NAdam",
                                                               "RAdam",
                                                               "RMSprop",
                                                               "Rprop",
                                                               "SGD",
                                                               "SparseAdam",
                                                               "Muon"};

void optimizer_unknown(const View& view, Report& report) {
  const std::string given = view.text(Knob::optimizer_type);
  if (given.empty() || is_among(kTorchOptimizers, given)) return;
  for (const std::string_view own : kOwnOptimizers) {
    if (lower(std::string(own)) == view.optimizer()) return;
  }
  std::vector<std::string_view> names(kOwnOptimizers.begin(), kOwnOptimizers.end());
  names.insert(names.end(), kTorchOptimizers.begin(), kTorchOptimizers.end());
  const std::vector<std::string> near = nearest_names(given, names, 1);
  report.at(Knob::optimizer_type, {given, near.empty() ? "AdamW" : near.front()});
}

void optimizer_with_zero(const View& view, Report& report) {
  const std::string name = view.optimizer();
  if (name.empty() || view.stage() == 0) return;
  constexpr std::array<std::string_view, 3> kOneBit = {"onebitadam", "zerooneadam", "onebitlamb"};
  if (is_among(kOneBit, name)) {
    report.at(Knob::optimizer_type, {view.text(Knob::optimizer_type)}, 0);
    return;
  }
  constexpr std::array<std::string_view, 5> kTested = {"adam", "adamw", "adagrad", "lion", "muon"};
  if (is_among(kTested, name) || view.is_on(Knob::zero_allow_untested_optimizer)) return;
  report.at(Knob::optimizer_type, {view.text(Knob::optimizer_type)}, 1);
}

void clipping_in_optimizer(const View& view, Report& report) {
  if (view.config().is_set(Knob::optimizer_max_grad_norm)) {
    report.at(Knob::optimizer_max_grad_norm);
  }
}

void muon(const View& view, Report& report) {
  if (view.optimizer() != "muon" || !view.is_on(Knob::reduce_scatter)) return;
  const bool offloaded = view.is_offloaded(Knob::offload_optimizer_device);
  if (view.stage() != 3 && !(view.stage() > 0 && offloaded)) return;
  report.at(Knob::reduce_scatter, {}, view.stage() == 3 ? 0 : 1);
}

// muon_update() is called in ZeRO's stages 1 to 3 alone, at 1 and 2 not where the optimizer is
// offloaded; zero.Init hides from set_optimizer_flags what is a matrix.
void muon_left_out(const View& view, Report& report) {
  if (view.optimizer() != "muon") return;
  const int stage = view.stage();
  if (stage == 0) {
    report.at(Knob::zero_stage, {}, 0);
  } else if (stage == 3) {
    report.at(Knob::zero_stage, {}, 2);
  } else if (view.is_offloaded(Knob::offload_optimizer_device)) {
    report.at(Knob::offload_optimizer_device, {}, 1);
  }
}

void adam_is_adamw(const View& view, Report& report) {
  if (view.optimizer() != "adam" || view.config().is_set(Knob::optimizer_adam_w_mode)) return;
  const double decay = view.real(Knob::optimizer_weight_decay).value_or(0.0);
  constexpr double kFelt = 1e-4;  // smaller ones change nothing either way
  if (decay >= kFelt) report.at(Knob::optimizer_type, {Json(decay).dump()});
}

// --- scheduler

constexpr std::array<std::string_view, 5> kOwnSchedules = {
    "LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
constexpr std::array<std::string_view, 16> kTorchSchedules = {"ChainedScheduler",
                                                              "ConstantLR",
                                                              "CosineAnnealingLR",
                                                              "CosineAnnealingWarmRestarts",
                                                              "CyclicLR",
                                                              "ExponentialLR",
                                                              "LRScheduler",
                                                              "LambdaLR",
                                                              "LinearLR",
                                                              "MultiStepLR",
                                                              "MultiplicativeLR",
                                                              "OneCycleLR",
                                                              "PolynomialLR",
                                                              "ReduceLROnPlateau",
                                                              "SequentialLR",
                                                              "StepLR"};

void scheduler_unknown(const View& view, Report& report) {
  const std::string given = view.text(Knob::scheduler_type);
  if (given.empty() || is_among(kOwnSchedules, given) || is_among(kTorchSchedules, given)) return;
  std::vector<std::string_view> names(kOwnSchedules.begin(), kOwnSchedules.end());
  names.insert(names.end(), kTorchSchedules.begin(), kTorchSchedules.end());
  const std::vector<std::string> near = nearest_names(given, names, 1);
  report.at(Knob::scheduler_type, {given, near.empty() ? "WarmupLR" : near.front()});
}

void scheduler_arguments(const View& view, Report& report) {
  const std::string type = view.text(Knob::scheduler_type);
  const auto require = [&](Knob knob) {
    if (!view.config().is_set(knob)) report.at(knob, {type, quoted(knob)});
  };
  if (type == "WarmupDecayLR" || type == "WarmupCosineLR") {
    require(Knob::scheduler_total_num_steps);
  } else if (type == "OneCycle") {
    require(Knob::scheduler_cycle_min_lr);
    require(Knob::scheduler_cycle_max_lr);
  }
}

// --- activation checkpointing

void contiguous_checkpointing(const View& view, Report& report) {
  if (!view.is_on(Knob::activation_contiguous_memory_optimization)) return;
  if (!view.is_on(Knob::activation_partition_activations)) {
    report.at(Knob::activation_contiguous_memory_optimization, {}, 0);
  }
  if (!view.is_given(Knob::activation_number_checkpoints)) {
    // configure() takes the number from the script too, as Megatron does.
    report.as(Severity::warning, Knob::activation_number_checkpoints, {}, 1);
  }
}

// The Trainer's checkpointing is torch's, which knows nothing of this section.
void activation_section(const View& view, Report& report) {
  if (view.context().style != ConfigStyle::hf_trainer) return;
  for (const Knob knob : {Knob::activation_partition_activations,
                          Knob::activation_cpu_checkpointing,
                          Knob::activation_contiguous_memory_optimization}) {
    if (!view.is_on(knob)) continue;
    report.at(knob);
    return;
  }
}

constexpr std::array kOptimizerRules = {
    Rule{
        {.code = "optimizer-unknown",
         .severity = Severity::error,
         .summary = "the optimizer is one of DeepSpeed's or of torch.optim",
         .cost = "DeepSpeed stops: \"not a supported DeepSpeed Optimizer\"",
         .texts = {{"neither DeepSpeed nor torch.optim has an optimizer {0}", "did you mean {1}?"}},
         .source = "runtime/engine.py:_is_supported_optimizer"},
        optimizer_unknown},
    Rule{{.code = "optimizer-with-zero",
          .severity = Severity::error,
          .summary = "ZeRO has an optimizer that it supports, or is told to take it",
          .cost = "DeepSpeed stops",
          .texts = {{"{0} does not work with ZeRO", "set stage 0 or choose AdamW"},
                    {"{0} is not tested with ZeRO",
                     "set zero_allow_untested_optimizer to true or choose AdamW"}},
          .source = "runtime/engine.py:_do_optimizer_sanity_check"},
         optimizer_with_zero},
    Rule{{.code = "clipping-in-optimizer",
          .severity = Severity::error,
          .summary = "max_grad_norm is not among the optimizer's parameters",
          .cost = "DeepSpeed stops",
          .texts = {{"max_grad_norm is not accepted among the optimizer's parameters",
                     "write gradient_clipping at the top level"}},
          .source = "runtime/engine.py:_configure_basic_optimizer"},
         clipping_in_optimizer},
    Rule{{.code = "muon-reduce-scatter",
          .severity = Severity::error,
          .summary = "Muon runs without reduce_scatter at stage 3 and with offload",
          .cost = "DeepSpeed stops",
          .texts = {{"Muon does not work with reduce_scatter at stage 3",
                     "set reduce_scatter to false"},
                    {"Muon with offload does not work with reduce_scatter",
                     "set reduce_scatter to false"}},
          .source = "runtime/zero/stage3.py:DeepSpeedZeroOptimizer_Stage3.__init__"},
         muon},
    Rule{{.code = "muon-left-out",
          .severity = Severity::warning,
          .use = RuleUse::advice,
          .summary = "Muon runs where DeepSpeed orthogonalises its updates",
          .cost = "the run goes on with plain gradients for the matrices, or with Adam for all",
          .texts =
              {{"at stage 0 matrices get plain gradients in place of Muon's updates",
                "set stage 1 or 2"},
               {"with an offloaded optimizer matrices get plain gradients in place of Muon's "
                "updates",
                "leave offload_optimizer out"},
               {"at stage 3 zero.Init makes every weight a vector, and DeepSpeed leaves vectors "
                "to Adam",
                "set stage 1 or 2, or build the model without zero.Init"}},
          .source = "__init__.py:set_optimizer_flags"},
         muon_left_out},
    Rule{{.code = "adam-is-adamw",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .summary = "\"Adam\" with weight decay says which of the two it means",
          .cost = "weight decay is decoupled as in AdamW; results differ from torch's Adam",
          .texts = {{"\"Adam\" with weight_decay {0} means AdamW in DeepSpeed",
                     "write AdamW, or set adam_w_mode to false for L2 regularisation"}},
          .source = "runtime/engine.py:_configure_basic_optimizer"},
         adam_is_adamw},
    Rule{{.code = "scheduler-unknown",
          .severity = Severity::error,
          .summary = "the schedule is one of DeepSpeed's or of torch",
          .cost = "DeepSpeed stops: \"DeepSpeed does not recognize LR scheduler\"",
          .texts = {{"neither DeepSpeed nor torch has a schedule {0}", "did you mean {1}?"}},
          .source = "runtime/engine.py:_scheduler_from_config"},
         scheduler_unknown},
    Rule{
        {.code = "scheduler-arguments",
         .severity = Severity::error,
         .summary = "a schedule has the parameters it cannot do without",
         .cost = "DeepSpeed stops with a TypeError about a missing argument",
         .texts = {{"{0} needs {1}", "give it, or \"auto\" under the Trainer where that fills it"}},
         .source = "runtime/lr_schedules.py:WarmupDecayLR"},
        scheduler_arguments},
    Rule{{.code = "contiguous-checkpointing",
          .severity = Severity::error,
          .summary = "contiguous_memory_optimization has what it needs",
          .cost = "the first checkpointed layer stops the run",
          .texts = {{"contiguous_memory_optimization needs partition_activations",
                     "set both or none"},
                    {"contiguous_memory_optimization needs number_checkpoints, here or from the "
                     "script",
                     "give the number of checkpointed layers"}},
          .source = "runtime/activation_checkpointing/checkpointing.py:configure"},
         contiguous_checkpointing},
    Rule{{.code = "activation-section-ignored",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .summary = "under the Trainer activation checkpointing is asked for with its own flag",
          .cost = "activations are kept in full although the file seems to save them",
          .texts = {{"the Trainer's models do not read the section activation_checkpointing",
                     "use --gradient_checkpointing; leave the section out"}},
          .source = "runtime/activation_checkpointing/checkpointing.py:checkpoint"},
         activation_section},
};

}  // namespace

std::span<const Rule> optimizer_rules() { return kOptimizerRules; }

}  // namespace zeroplan::rules
