// Rules about ZeRO stages and what goes with them; see rules.hpp.
#include <array>

#include "model/knobs/rule_view.hpp"

namespace zeroplan::rules {
namespace {

void pipeline_stage(const View& view, Report& report) {
  if (view.context().pipeline_parallel <= 1 || view.stage() < 2) return;
  report.at(Knob::zero_stage, {std::to_string(view.stage())});
}

void pipeline_overlap(const View& view, Report& report) {
  if (view.context().pipeline_parallel <= 1 || view.stage() != 1) return;
  if (view.config().boolean(Knob::overlap_comm).value_or(false)) report.at(Knob::overlap_comm);
}

void reduce_scatter_scaling(const View& view, Report& report) {
  const int first_stage = view.acts(ReleaseRule::stage1_refuses_scaling) ? 1 : 2;
  if (view.stage() < first_stage || !view.is_on(Knob::reduce_scatter)) return;
  if (view.is_on(Knob::prescale_gradients)) report.at(Knob::prescale_gradients, {}, 0);
  if (view.real(Knob::gradient_predivide_factor).value_or(1.0) != 1.0) {
    report.at(Knob::gradient_predivide_factor, {}, 1);
  }
}

void allreduce_sum(const View& view, Report& report) {
  if (view.text(Knob::gradient_allreduce_op) != "sum") return;
  const char* with = view.stage() == 3                       ? "stage 3"
                     : view.is_given(Knob::zenflow)          ? "ZenFlow"
                     : view.is_on(Knob::compile_deepcompile) ? "DeepCompile"
                                                             : nullptr;
  if (with != nullptr) report.at(Knob::gradient_allreduce_op, {with});
}

void legacy_stage1(const View& view, Report& report) {
  if (view.is_on(Knob::legacy_stage1) && view.stage() > 0) report.at(Knob::legacy_stage1);
}

void quantized_gradients(const View& view, Report& report) {
  if (view.stage() != 3 || !view.is_on(Knob::zero_quantized_gradients)) return;
  if (!view.is_on(Knob::reduce_scatter)) report.at(Knob::reduce_scatter);
}

bool is_mics(const View& view) {
  return view.stage() == 3 && view.integer(Knob::mics_shard_size).value_or(-1) > 0;
}

void mics_offload(const View& view, Report& report) {
  if (!is_mics(view) || !view.is_offloaded(Knob::offload_optimizer_device)) return;
  // One shard of all ranks sums nothing over replicas.
  const bool one_shard = view.context().ranks_known &&
                         *view.integer(Knob::mics_shard_size) == view.context().world_size;
  if (!one_shard) report.at(Knob::mics_shard_size);
}

void mics_ranks(const View& view, Report& report) {
  if (!is_mics(view)) return;
  const std::int64_t size = *view.integer(Knob::mics_shard_size);
  const std::int64_t ranks = view.context().world_size / view.context().pipeline_parallel;
  if (ranks % size != 0) {
    report.at(Knob::mics_shard_size, {std::to_string(size), std::to_string(ranks)});
  }
}

// Groups are ranges of that many ranks, or of all where there are fewer.
void hpz_ranks(const View& view, Report& report) {
  const std::int64_t size = view.integer(Knob::zero_hpz_partition_size).value_or(1);
  if (view.stage() != 3 || size <= 1) return;
  const std::int64_t ranks = view.data_parallel();
  if (size < ranks && ranks % size != 0) {
    report.at(Knob::zero_hpz_partition_size, {std::to_string(size), std::to_string(ranks)});
  }
}

void unmanaged_accumulation(const View& view, Report& report) {
  const bool managed = view.config().boolean(Knob::managed_gradient_accumulation).value_or(true);
  if (managed || !view.acts(ReleaseRule::manages_accumulation)) return;
  const char* with = view.stage() < 2 && view.is_on(Knob::overlap_comm)
                         ? "overlap_comm at stage 0 or 1"
                     : view.context().pipeline_parallel > 1  ? "pipeline parallelism"
                     : view.is_on(Knob::compile_deepcompile) ? "DeepCompile"
                     : view.is_on(Knob::amp_enabled)         ? "amp"
                                                             : nullptr;
  if (with != nullptr) report.at(Knob::managed_gradient_accumulation, {with});
}

// The assertion is in 0.16 to 0.19.3 (engine.py _configure_tensor_parallel_states). 0.19.4 to
// 0.19.7 cut weights that have two dimensions (module_inject/auto_tp.py _replace_module), which
// those that zero.Init has partitioned have not: seen in a rehearsal of 0.19.6 under the Trainer.
void autotp_stage3(const View& view, Report& report) {
  const std::int64_t size = view.integer(Knob::tensor_parallel_autotp_size).value_or(0);
  if (size <= 1 || view.stage() != 3) return;
  if (view.acts(ReleaseRule::autotp_refuses_stage3)) {
    report.at(Knob::tensor_parallel_autotp_size);
  } else if (view.context().style == ConfigStyle::hf_trainer &&
             view.acts(ReleaseRule::autotp_misses_zero_init)) {
    report.at(Knob::tensor_parallel_autotp_size, {std::to_string(size)}, 1);
  }
}

void allgather_bucket_odd(const View& view, Report& report) {
  const std::int64_t size = view.integer(Knob::allgather_bucket_size).value_or(0);
  if (size % 2 == 0 || (view.stage() != 1 && view.stage() != 2)) return;
  report.at(Knob::allgather_bucket_size, {std::to_string(size)});
}

constexpr std::array kZeroRules = {
    Rule{{.code = "pipeline-zero-stage",
          .severity = Severity::error,
          .summary = "a pipeline runs with stage 0 or 1",
          .cost = "DeepSpeed stops: ZeRO 2 and 3 are incompatible with pipeline parallelism",
          .texts = {{"stage {0} does not work with pipeline parallelism",
                     "use stage 0 or 1, or no pipeline"}},
          .source = "runtime/pipe/engine.py:PipelineEngine.__init__"},
         pipeline_stage},
    Rule{{.code = "pipeline-overlap",
          .summary = "a pipeline has no overlap_comm",
          .cost = "gradients are reduced after the last micro-batch, not behind the backward pass",
          .texts = {{"a pipeline switches overlap_comm off", "remove overlap_comm"}},
          .source = "runtime/engine.py:_configure_zero_optimizer"},
         pipeline_overlap},
    Rule{{.code = "reduce-scatter-scaling",
          .severity = Severity::error,
          .summary = "gradients are not prescaled where reduce_scatter is on",
          .cost = "DeepSpeed stops",
          .texts = {{"prescale_gradients does not work with reduce_scatter at this stage",
                     "remove prescale_gradients or set reduce_scatter to false"},
                    {"gradient_predivide_factor does not work with reduce_scatter at this stage",
                     "set it to 1.0 or reduce_scatter to false"}},
          .source = "runtime/zero/stage_1_and_2.py:DeepSpeedZeroOptimizer.__init__"},
         reduce_scatter_scaling},
    Rule{{.code = "allreduce-sum",
          .severity = Severity::error,
          .summary = "gradients are summed only without stage 3, ZenFlow and DeepCompile",
          .cost = "DeepSpeed stops",
          .texts = {{"summing gradients does not work with {0}", "use \"mean\""}},
          .source = "runtime/config.py:_do_error_check"},
         allreduce_sum},
    Rule{{.code = "legacy-stage1",
          .severity = Severity::error,
          .summary = "legacy_stage1 is not set",
          .cost = "DeepSpeed stops",
          .texts = {{"the old stage 1 is gone since DeepSpeed 0.5.9", "remove it"}},
          .source = "runtime/engine.py:_configure_zero_optimizer"},
         legacy_stage1},
    Rule{
        {.code = "quantized-gradients",
         .severity = Severity::error,
         .summary = "zero_quantized_gradients goes with reduce_scatter",
         .cost = "DeepSpeed stops",
         .texts = {{"zero_quantized_gradients needs reduce_scatter", "set reduce_scatter to true"}},
         .source = "runtime/zero/stage3.py:DeepSpeedZeroOptimizer_Stage3.__init__"},
        quantized_gradients},
    Rule{{.code = "mics-offload",
          .severity = Severity::error,
          .summary = "MiCS runs without optimizer offload",
          .cost = "the first backward pass stops: \"no support for CPU offloading\"",
          .texts = {{"MiCS does not work with offload_optimizer",
                     "remove mics_shard_size or the offload"}},
          .source = "runtime/zero/mics.py:allreduce_mics_shard_grads"},
         mics_offload},
    Rule{{.code = "mics-ranks",
          .severity = Severity::error,
          .needs = kNeedsRanks,
          .summary = "mics_shard_size divides the ranks",
          .cost = "DeepSpeed stops while it makes the groups",
          .texts = {{"mics_shard_size is {0}, which does not divide {1} ranks",
                     "choose a divisor, best the GPUs of one node"}},
          .source = "runtime/zero/mics_utils.py:_generate_mics_config"},
         mics_ranks},
    Rule{{.code = "hpz-ranks",
          .severity = Severity::error,
          .needs = kNeedsRanks,
          .summary = "zero_hpz_partition_size divides the data-parallel ranks",
          .cost = "DeepSpeed stops while it makes the groups",
          .texts = {{"zero_hpz_partition_size is {0}, which does not divide {1} data-parallel "
                     "ranks",
                     "set it to the GPUs of one node"}},
          .source = "utils/groups.py:_create_zero_param_parallel_group"},
         hpz_ranks},
    Rule{{.code = "unmanaged-accumulation",
          .severity = Severity::error,
          .summary = "managed_gradient_accumulation is false only where that works",
          .cost = "DeepSpeed stops",
          .texts = {{"false does not work with {0}", "remove the key"}},
          .source = "runtime/engine.py:_do_sanity_check"},
         unmanaged_accumulation},
    Rule{{.code = "autotp-stage3",
          .severity = Severity::error,
          .summary = "AutoTP runs with stages 0 to 2, and from 0.19.8 on with stage 3",
          .cost = "DeepSpeed stops, or all ranks of AutoTP train the whole model on the same "
                  "samples",
          .texts = {{"this release does not combine autotp_size with stage 3",
                     "use stage 2 or less, or DeepSpeed 0.19.8"},
                    {"under stage 3 the Trainer's zero.Init leaves AutoTP no layer to cut: {0} "
                     "ranks train the whole model on the same samples",
                     "use stage 2 or less, or DeepSpeed 0.19.8"}},
          .source = "runtime/engine.py:_configure_tensor_parallel_states"},
         autotp_stage3},
    Rule{{.code = "allgather-bucket-odd",
          .severity = Severity::error,
          .summary = "allgather_bucket_size is even",
          .cost = "DeepSpeed stops, although the size does nothing else",
          .texts = {{"allgather_bucket_size {0} is odd", "remove it: it has no other effect"}},
          .source = "runtime/zero/stage_1_and_2.py:nccl_start_alignment_factor"},
         allgather_bucket_odd},
};

}  // namespace

std::span<const Rule> zero_rules() { return kZeroRules; }

}  // namespace zeroplan::rules
