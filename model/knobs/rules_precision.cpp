// Rules about number formats; see rules.hpp.
#include <array>
#include <cmath>

#include "model/knobs/rule_view.hpp"

namespace zeroplan::rules {
namespace {

void fp16_and_bf16(const View& view, Report& report) {
  if (view.is_on(Knob::fp16_enabled) && view.is_on(Knob::bf16_enabled)) {
    report.at(Knob::fp16_enabled);
  }
}

void amp_with(const View& view, Report& report) {
  // DeepSpeed takes "enabled" out of the section without asking whether it is there.
  if (view.config().is_set(Knob::amp_opt_level) && !view.config().is_set(Knob::amp_enabled)) {
    report.at(Knob::amp_enabled, {}, 0);
  }
  if (!view.is_on(Knob::amp_enabled)) return;
  if (view.stage() > 0) {
    report.at(Knob::amp_enabled, {}, 1);
  } else if (view.is_on(Knob::fp16_enabled) || view.is_on(Knob::bf16_enabled)) {
    report.at(Knob::amp_enabled, {}, 2);
  }
}

void master_weights(const View& view, Report& report) {
  const bool states = view.is_on(Knob::bf16_optimizer_states);
  const bool both = view.is_on(Knob::fp16_master_weights_and_grads) &&
                    view.is_on(Knob::bf16_master_weights_and_grads);
  if (both) report.at(Knob::fp16_master_weights_and_grads, {}, 0);
  for (const Knob knob :
       {Knob::fp16_master_weights_and_grads, Knob::bf16_master_weights_and_grads}) {
    if (!view.is_on(knob)) continue;
    const bool on_gpu = knob == Knob::bf16_master_weights_and_grads && states;
    if (view.stage() == 0) {
      report.at(knob, {quoted(knob)}, 1);
    } else if (!on_gpu && !view.is_offloaded(Knob::offload_optimizer_device)) {
      report.at(knob, {quoted(knob)}, 2);
    }
  }
  if (states && !view.is_on(Knob::bf16_master_weights_and_grads)) {
    report.at(Knob::bf16_optimizer_states, {}, 3);
  }
}

// From 0.17 fp16 is checked by pydantic, and since 0.19 a dynamic loss scale must be positive.
void loss_scale(const View& view, Report& report) {
  const double smallest = view.real(Knob::fp16_min_loss_scale).value_or(1.0);
  if (view.acts(ReleaseRule::refuses_zero_loss_scale)) {
    if (smallest != std::floor(smallest)) report.at(Knob::fp16_min_loss_scale, {}, 0);
    const bool dynamic = view.real(Knob::fp16_loss_scale).value_or(0.0) == 0.0;
    if (view.is_on(Knob::fp16_enabled) && dynamic && smallest <= 0.0) {
      report.at(Knob::fp16_min_loss_scale, {}, 1);
    }
    if (view.is_on(Knob::fp16_enabled) && dynamic &&
        view.integer(Knob::fp16_loss_scale_window).value_or(1) <= 0) {
      report.at(Knob::fp16_loss_scale_window, {}, 2);
    }
  }
  const std::string optimizer = view.optimizer();
  const bool lamb = optimizer == "lamb" || optimizer == "onebitlamb";
  if (lamb && view.real(Knob::fp16_loss_scale).value_or(0.0) != 0.0) {
    report.at(Knob::fp16_loss_scale, {}, 3);
  }
}

// Without ZeRO the wrapper exists for few pairs of model and accumulation format.
void accumulation_format(const View& view, Report& report) {
  const std::string given = view.text(Knob::data_types_grad_accum_dtype);
  const std::string model = view.model_format();
  if (given.empty() || model.empty() || view.stage() > 0 || view.is_on(Knob::amp_enabled)) return;
  const bool bf16 = model == "bf16";
  const bool newest = view.acts(ReleaseRule::sums_in_model_format);
  const bool old_bf16 = bf16 && !newest && view.context().pipeline_parallel == 1;
  const bool allowed = old_bf16                             ? given == "fp32"
                       : bf16 && !newest && given == "fp32" ? true
                                                            : given == model;
  if (!allowed) report.at(Knob::data_types_grad_accum_dtype, {model, given});
}

// Whether gradients are to be accumulated in another format than the model's; the format, or "".
std::string foreign_accumulation(const View& view) {
  const std::string given = view.text(Knob::data_types_grad_accum_dtype);
  const std::string model = view.model_format();
  return given.empty() || model.empty() || given == model ? "" : given;
}

bool takes_bf16_optimizer(const View& view) {
  return view.stage() == 1 && view.model_format() == "bf16" &&
         view.text(Knob::data_types_grad_accum_dtype) == "fp32" &&
         view.text(Knob::offload_optimizer_device) != "cpu";
}

// use_grad_accum_attribute is off where gradients are partitioned, in every described release.
void accumulation_ignored(const View& view, Report& report) {
  const std::string given = foreign_accumulation(view);
  if (view.stage() != 2 || given.empty()) return;
  report.at(Knob::data_types_grad_accum_dtype, {given, view.model_format()});
}

// The bucket reduces a cast copy, and the step reads the local accumulator again: seen on
// recordings of 0.19.6 with two ranks.
void accumulation_not_reduced(const View& view, Report& report) {
  const std::string given = foreign_accumulation(view);
  if (view.stage() != 1 || given.empty() || takes_bf16_optimizer(view)) return;
  if (!view.acts(ReleaseRule::reads_local_accumulator)) return;
  report.at(Knob::data_types_grad_accum_dtype, {given, view.model_format()});
}

void full_gradient_buffer(const View& view, Report& report) {
  if (takes_bf16_optimizer(view)) report.at(Knob::data_types_grad_accum_dtype);
}

// The Trainer fills "auto" of a section that is there and adds none (integrations/deepspeed.py
// HfTrainerDeepSpeedConfig.trainer_config_process).
void full_precision(const View& view, Report& report) {
  if (view.is_on(Knob::amp_enabled) || view.is_on(Knob::torch_autocast_enabled)) return;
  if (view.context().style == ConfigStyle::hf_trainer) {
    const DsConfig& config = view.config();
    if (config.is_set(Knob::bf16_enabled) || config.is_set(Knob::fp16_enabled)) return;
    if (view.stage() == 3) report.as(Severity::info, "", {}, 1);
  } else if (view.model_format() == "fp32") {
    report.at("");
  }
}

void communication_format(const View& view, Report& report) {
  const std::string given = view.text(Knob::communication_data_type);
  const std::string model = view.model_format();
  if (given.empty() || model.empty() || given == model) return;
  if (given == "fp16" && model == "bf16") report.at(Knob::communication_data_type, {}, 0);
  if (given == "fp32") {
    report.as(Severity::info, Knob::communication_data_type, {model}, 1);
  }
}

void fixed_loss_scale(const View& view, Report& report) {
  const double scale = view.real(Knob::fp16_loss_scale).value_or(0.0);
  if (!view.is_on(Knob::fp16_enabled) || scale == 0.0) return;
  report.at(Knob::fp16_loss_scale, {Json(scale).dump()});
}

constexpr std::array kPrecisionRules = {
    Rule{{.code = "fp16-and-bf16",
          .severity = Severity::error,
          .summary = "fp16 and bf16 are not both enabled",
          .cost = "DeepSpeed stops",
          .texts = {{"fp16 and bf16 are both enabled", "enable one of them"}},
          .source = "runtime/config.py:_initialize_params"},
         fp16_and_bf16},
    Rule{{.code = "amp-conflict",
          .severity = Severity::error,
          .summary = "amp says whether it is enabled, and then is without ZeRO, fp16 and bf16",
          .cost = "DeepSpeed stops",
          .texts = {{"the section amp lacks \"enabled\"", "write it"},
                    {"amp does not work with ZeRO", "use fp16 or bf16 instead"},
                    {"amp does not work with fp16 or bf16", "remove amp"}},
          .source = "runtime/engine.py:_do_optimizer_sanity_check"},
         amp_with},
    Rule{{.code = "master-weights",
          .severity = Severity::error,
          .summary = "16-bit master weights have a stage and, unless the states are bf16 too, "
                     "offload",
          .cost = "DeepSpeed stops",
          .texts = {{"master weights cannot be fp16 and bf16 at once", "set one of them"},
                    {"{0} needs ZeRO stage 1, 2 or 3", "set a stage"},
                    {"{0} needs offload_optimizer with DeepSpeed's CPU Adam",
                     "set offload_optimizer.device to \"cpu\""},
                    {"bf16_optimizer_states needs bf16_master_weights_and_grads", "set both"}},
          .source = "runtime/base_optimizer.py:_configure_master_weights"},
         master_weights},
    Rule{{.code = "loss-scale",
          .severity = Severity::error,
          .summary = "the loss scale is one that the optimizer and this release accept",
          .cost = "DeepSpeed stops",
          .texts = {{"min_loss_scale must be an integer since DeepSpeed 0.17", "write 1"},
                    {"min_loss_scale must be positive", "write 1"},
                    {"loss_scale_window must be positive", "write 1000"},
                    {"LAMB needs a dynamic loss scale", "set loss_scale to 0"}},
          .source = "runtime/precision_config.py:DeepSpeedFP16Config"},
         loss_scale},
    Rule{{.code = "accumulation-format",
          .severity = Severity::error,
          .summary = "without ZeRO gradients accumulate in a format that has a wrapper",
          .cost = "DeepSpeed stops with NotImplementedError",
          .texts = {{"without ZeRO a {0} model cannot accumulate gradients in {1}",
                     "remove grad_accum_dtype or set a ZeRO stage"}},
          .source = "runtime/engine.py:_do_optimizer_sanity_check"},
         accumulation_format},
    Rule{
        {.code = "accumulation-ignored",
         .use = RuleUse::advice,
         .summary = "grad_accum_dtype is used where it acts: not at stage 2",
         .cost = "gradients of all micro-batches are summed in 16 bits although fp32 was asked for",
         .texts = {{"stage 2 ignores grad_accum_dtype {0} and accumulates in {1}",
                    "remove it, or use stage 3, which honours it"}},
         .source = "runtime/zero/stage_1_and_2.py:use_grad_accum_attribute"},
        accumulation_ignored},
    Rule{{.code = "accumulation-not-reduced",
          .use = RuleUse::advice,
          .summary = "stage 1 accumulates in the model's format, or is bf16 with fp32 on the GPU",
          .cost = "ranks step with their own gradients instead of the average, and drift apart",
          .texts = {{"stage 1 reduces a copy of {0} gradients of a {1} model, and then steps with "
                     "the ones that were not reduced",
                     "remove grad_accum_dtype, or use stage 3"}},
          .source = "runtime/zero/stage_1_and_2.py:get_gradient_for_reduction"},
         accumulation_not_reduced},
    Rule{
        {.code = "full-gradient-buffer",
         .severity = Severity::info,
         .use = RuleUse::advice,
         .summary = "stage 1 with bf16 does not accumulate in fp32 unless that is meant",
         .cost = "every GPU keeps fp32 gradients of the whole model for good: 4 bytes a parameter, "
                 "not sharded",
         .texts = {{"stage 1 with bf16 and fp32 accumulation keeps unsharded fp32 gradients of "
                    "the whole model on every GPU",
                    "remove grad_accum_dtype to save 4 bytes a parameter, or use stage 3"}},
         .source = "runtime/bf16_optimizer.py:BF16_Optimizer"},
        full_gradient_buffer},
    Rule{{.code = "full-precision",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .summary = "a file says fp16 or bf16",
          .cost = "weights, gradients and activations take twice the memory, matrix products "
                  "several times the time",
          .texts = {{"neither fp16 nor bf16 is enabled: DeepSpeed trains in fp32",
                     "add \"bf16\": {\"enabled\": true} (Ampere and newer) or fp16"},
                    {"neither a bf16 nor an fp16 section: accelerate adds that of the Trainer's "
                     "--bf16 after from_pretrained has made the weights in fp32",
                     "add \"bf16\": {\"enabled\": \"auto\"}, which the Trainer's argument fills"}},
          .source = "runtime/engine.py:get_data_types"},
         full_precision},
    Rule{{.code = "communication-format",
          .use = RuleUse::advice,
          .summary = "gradients travel in the model's format",
          .cost = "fp16 overflows where bf16 does not; fp32 moves twice the bytes and needs a cast "
                  "copy of each bucket",
          .texts = {{"communication_data_type fp16 narrows the range of a bf16 model's gradients: "
                     "sums over ranks overflow to infinity",
                     "remove communication_data_type"},
                    {"communication_data_type fp32 doubles the bytes that a {0} model's gradients "
                     "move",
                     "remove communication_data_type unless the sums need it"}},
          .source = "runtime/engine.py:communication_data_type"},
         communication_format},
    Rule{{.code = "fixed-loss-scale",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .summary = "fp16 has a dynamic loss scale",
          .cost = "a scale that is too large skips steps for ever, one that is too small loses "
                  "gradients",
          .texts = {{"loss_scale {0} is fixed and never adapts",
                     "set loss_scale to 0 for the dynamic one"}},
          .source = "runtime/fp16/loss_scaler.py:CreateLossScaler"},
         fixed_loss_scale},
};

}  // namespace

std::span<const Rule> precision_rules() { return kPrecisionRules; }

}  // namespace zeroplan::rules
