// Rules about settings that run, at a cost; see rules.hpp.
#include <array>

#include "model/knobs/rule_view.hpp"

namespace zeroplan::rules {
namespace {

void memory_efficient_linear(const View& view, Report& report) {
  if (view.stage() != 3) return;
  if (!view.config().boolean(Knob::memory_efficient_linear).value_or(true)) {
    report.at(Knob::memory_efficient_linear);
  }
}

void gather_on_save(const View& view, Report& report) {
  constexpr Knob kKey = Knob::stage3_gather_16bit_weights_on_model_save;
  if (view.stage() != 3 || view.config().is_auto(kKey) || view.is_on(kKey)) return;
  if (view.context().style == ConfigStyle::hf_trainer) {
    report.at(kKey, {}, 0);
  } else {
    report.as(Severity::info, kKey, {}, 1);
  }
}

void overlap_off(const View& view, Report& report) {
  if (view.stage() != 3) return;
  if (!view.config().boolean(Knob::overlap_comm).value_or(true)) report.at(Knob::overlap_comm);
}

bool was_below_one(const View& view, Knob knob) {
  for (const Finding& note : view.config().notes()) {
    if (note.code == note_code::kExponentSign && note.pointer == pointer_of(knob)) return true;
  }
  return false;
}

// A limit below a million elements is below a single matrix of any model worth sharding.
constexpr std::int64_t kFewElements = 1'000'000;

void prefetch_off(const View& view, Report& report) {
  if (view.stage() != 3) return;
  constexpr std::array kKeys = {Knob::stage3_prefetch_bucket_size,
                                Knob::stage3_max_live_parameters};
  for (const Knob knob : kKeys) {
    const std::optional<std::int64_t> given = view.config().integer(knob);
    const std::int64_t least = knob == kKeys[0] ? 1 : kFewElements;
    if (!given || *given >= least || was_below_one(view, knob)) continue;
    // Zero is a way to save memory; a small number looks like another unit.
    report.as(*given == 0 ? Severity::info : Severity::warning,
              knob,
              {quoted(knob), std::to_string(*given)});
  }
}

void small_bucket(const View& view, Report& report) {
  constexpr std::int64_t kTiny = 100'000;
  const std::optional<std::int64_t> given = view.config().integer(Knob::reduce_bucket_size);
  if (view.stage() == 0 || !given || *given >= kTiny) return;
  report.at(Knob::reduce_bucket_size, {std::to_string(*given)});
}

// 4 GB in 16 bits: nobody means that, and it is what bytes written for elements look like.
void size_in_bytes(const View& view, Report& report) {
  constexpr std::int64_t kHuge = 2'000'000'000;
  const std::optional<std::int64_t> given = view.config().integer(Knob::reduce_bucket_size);
  if (view.stage() == 0 || !given || *given < kHuge) return;
  const double gigabytes = 2e-9 * static_cast<double>(*given);
  report.at(Knob::reduce_bucket_size,
            {std::to_string(*given), std::to_string(static_cast<std::int64_t>(gigabytes))});
}

void whole_step_at_once(const View& view, Report& report) {
  constexpr std::int64_t kHuge = 10'000'000'000;
  const std::optional<std::int64_t> given = view.config().integer(Knob::sub_group_size);
  if (view.stage() != 3 || !given || *given < kHuge) return;
  report.at(Knob::sub_group_size, {std::to_string(*given)});
}

void stage2_traffic(const View& view, Report& report) {
  constexpr std::int64_t kMany = 8;
  const std::int64_t steps = view.integer(Knob::gradient_accumulation_steps).value_or(1);
  if (view.stage() != 2 || steps < kMany || view.data_parallel() <= 1) return;
  report.at(Knob::zero_stage, {std::to_string(steps)});
}

void nothing_to_shard(const View& view, Report& report) {
  if (view.stage() == 0 || view.data_parallel() * view.context().sequence_parallel > 1) return;
  const bool offloads = view.is_offloaded(Knob::offload_optimizer_device) ||
                        view.is_offloaded(Knob::offload_param_device);
  if (!offloads) report.at(Knob::zero_stage, {std::to_string(view.stage())});
}

void measuring(const View& view, Report& report) {
  for (const Knob knob :
       {Knob::wall_clock_breakdown, Knob::memory_breakdown, Knob::comms_logger_enabled}) {
    if (view.is_on(knob)) {
      report.at(knob, {std::string(pointer_of(knob).substr(1))});
    }
  }
}

void autotuning(const View& view, Report& report) {
  if (view.is_on(Knob::autotuning_enabled)) report.at(Knob::autotuning_enabled);
}

constexpr std::array kHabitRules = {
    Rule{{.code = "memory-efficient-linear",
          .use = RuleUse::advice,
          .summary = "memory_efficient_linear stays true",
          .cost = "every weight that the forward pass gathers stays on the GPU until its backward "
                  "pass: up to the whole model in 16 bits",
          .texts = {{"with memory_efficient_linear false gathered weights stay on the GPU through "
                     "the forward pass",
                     "remove it"}},
          .source = "runtime/zero/linear.py:LinearFunctionForZeroStage3"},
         memory_efficient_linear},
    Rule{{.code = "gather-on-save",
          .use = RuleUse::advice,
          .summary = "stage 3 gathers 16-bit weights when the model is saved",
          .cost =
              "no usable weights are saved: a file of some hundred KB, or a checkpoint of shards "
              "that zero_to_fp32.py must put together",
          .texts = {{"stage 3 without stage3_gather_16bit_weights_on_model_save: save_model writes "
                     "no weights",
                     "set it to true; rank 0 needs host memory for the whole model"},
                    {"stage 3 without stage3_gather_16bit_weights_on_model_save: save_16bit_model "
                     "writes nothing",
                     "set it to true, or convert checkpoints with zero_to_fp32.py"}},
          .source = "runtime/engine.py:save_16bit_model; transformers#21482, DeepSpeed#3841"},
         gather_on_save},
    Rule{{.code = "overlap-off",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .summary = "stage 3 overlaps communication",
          .cost = "gathers and reductions run on the stream of the kernels: all communication is "
                  "exposed",
          .texts = {{"overlap_comm is false at stage 3, where it is true by default",
                     "remove it unless the memory is needed"}},
          .source = "runtime/zero/config.py:overlap_comm_valid"},
         overlap_off},
    Rule{{.code = "prefetch-off",
          .use = RuleUse::advice,
          .summary = "stage 3 may fetch parameters ahead",
          .cost = "each layer waits for its weights: communication is exposed",
          .texts = {{"{0} {1} leaves nothing to prefetch; it counts elements",
                     "use 5e7 for prefetching and 1e9 for live parameters, or leave them out"}},
          .source = "runtime/zero/partitioned_param_coordinator.py:fetch_sub_module"},
         prefetch_off},
    Rule{
        {.code = "small-bucket",
         .use = RuleUse::advice,
         .summary = "reduce_bucket_size holds at least a few gradients",
         .cost = "one collective for every parameter: latency, not bandwidth, decides",
         .texts = {{"reduce_bucket_size is {0} elements; it counts neither MB nor parameters",
                    "use 5e7 to 5e8 elements"}},
         .source = "runtime/zero/stage_1_and_2.py:reduce_independent_p_g_buckets_and_remove_grads"},
        small_bucket},
    Rule{
        {.code = "size-in-bytes",
         .use = RuleUse::advice,
         .summary = "reduce_bucket_size is a number of elements, not of bytes",
         .cost = "the bucket is a buffer of that many elements on every GPU, two with overlap_comm "
                 "at stages 1 and 2",
         .texts = {{"reduce_bucket_size {0} counts elements: a buffer of {1} GB in 16 bits",
                    "use 2e8 to 5e8 elements"}},
         .source = "runtime/zero/stage3.py:__add_grad_to_ipg_bucket"},
        size_in_bytes},
    Rule{{.code = "whole-step-at-once",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .summary = "sub_group_size cuts the optimizer step into pieces",
          .cost = "the step makes fp32 copies of all gradients of the rank at once; on NVMe one "
                  "buffer holds the whole partition",
          .texts = {{"sub_group_size {0} puts the whole step into one piece",
                     "use 1e9 (the default), or less where the step runs out of memory"}},
          .source = "runtime/zero/stage3.py:_create_fp16_sub_groups"},
         whole_step_at_once},
    Rule{{.code = "stage2-traffic",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .needs = kNeedsRanks,
          .summary = "long accumulation runs with stage 1 where it fits",
          .cost = "stage 2 reduces in every micro-step, stage 1 once a step",
          .texts = {{"stage 2 reduces gradients in each of {0} micro-steps, stage 1 once",
                     "try stage 1 if unsharded gradients fit (2 bytes a parameter)"}},
          .source = "runtime/engine.py:allreduce_gradients"},
         stage2_traffic},
    Rule{{.code = "nothing-to-shard",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .needs = kNeedsRanks,
          .summary = "ZeRO has at least two ranks, or offloads",
          .cost = "buckets, buffers and hooks without any saving",
          .texts = {{"stage {0} on one data-parallel rank shards nothing",
                     "use stage 0, or offload the optimizer"}},
          .source = "runtime/zero/stage_1_and_2.py:DeepSpeedZeroOptimizer"},
         nothing_to_shard},
    Rule{{.code = "measuring-on",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .summary = "timers and profilers are off in a long run",
          .cost = "every step waits for the GPU at several places",
          .texts = {{"{0} measures in every step and synchronises for it",
                     "switch it off when the measuring is done"}},
          .source = "utils/timer.py:SynchronizedWallClockTimer"},
         measuring},
    Rule{{.code = "autotuning-left-on",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .summary = "autotuning is off in a file for training",
          .cost = "started with --autotuning the launcher runs experiments instead of the job",
          .texts = {{"autotuning is enabled in this file", "remove the section for training"}},
          .source = "launcher/runner.py:run_autotuning"},
         autotuning},
};

}  // namespace

std::span<const Rule> habit_rules() { return kHabitRules; }

}  // namespace zeroplan::rules
