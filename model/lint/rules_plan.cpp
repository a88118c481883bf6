// Rules that look at the prediction; see lint.hpp.
#include <algorithm>
#include <array>
#include <cstdio>

#include "base/diagnostic.hpp"
#include "model/lint/run_view.hpp"
#include "model/plan/trainer.hpp"
#include "model/predict/gather_timeline.hpp"
#include "model/release_table.hpp"
#include "model/releases.hpp"

namespace zeroplan::rules {
namespace {

std::string gibibytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", bytes / 1073741824.0);
  return text;
}

double bytes_of(Bytes bytes) { return static_cast<double>(bytes.count()); }

// A setting of the file that resolve() refuses, where no other rule names it.
void refused_plan(const Run& run, Report& report) {
  if (run.refusal == nullptr || !find_knob(run.refusal->pointer) ||
      report.has_error(run.refusal->pointer)) {
    return;
  }
  report.at(run.refusal->pointer, {run.refusal->expected, run.refusal->got, run.refusal->hint});
}

void releases_apart(const Run& run, Report& report) {
  for (const Phrase& conflict : run.plan->software.conflicts) {
    report.at(Knob::zero_stage, {conflict.english()});
  }
}

void out_of_memory(const Run& run, Report& report) {
  for (const Limit& limit : run.prediction->limits) {
    if (limit.resource == Resource::time || limit.pool != Limit::Pool::none) continue;
    report.at(Knob::zero_stage,
              {gibibytes(bytes_of(limit.needed)),
               gibibytes(bytes_of(limit.available)),
               limit.largest_term,
               limit.cheapest_change,
               gibibytes(bytes_of(limit.margin))},
              (limit.resource == Resource::gpu_memory    ? 0
               : limit.resource == Resource::host_memory ? 1
                                                         : 2) +
                  (limit.cheapest_change.empty() ? 3 : 0));
  }
  if (const auto& condition = run.prediction->host_condition) {
    report.at(Knob::zero_stage,
              {std::to_string(condition->enough.count() >> 30),
               gibibytes(bytes_of(run.prediction->host.capacity))},
              6);
  }
}

// DeepSpeed#3062: what prefetch and reuse keep gathered keeps its buffer.
void weight_buffers(const Run& run, Report& report) {
  for (const Limit& limit : run.prediction->limits) {
    // Too small a buffer is nvme-parameter-buffer.
    if (limit.pool != Limit::Pool::few && limit.pool != Limit::Pool::many) continue;
    report.at(Knob::offload_param_buffer_count, {limit.largest_term, limit.cheapest_change});
  }
}

// [L3] Bytes of the pool that optimizer states pass through on their way from and to NVMe.
//   B = n m G,  G = min(sub_group_size, P / N), for each GPU of a node
// n buffer_count; m = 4 bytes of a master weight. Source: runtime/swap_tensor/optimizer_utils.py:
// SwapBufferManager.
void swap_pool(const Run& run, Report& report) {
  constexpr double kShare = 0.25;
  if (run.file.stage() != 3 || run.file.text(Knob::offload_optimizer_device) != "nvme") return;
  const auto buffers = run.size(Knob::offload_optimizer_buffer_count);
  const auto group = run.size(Knob::sub_group_size);
  if (!buffers || !group) return;
  const double trainable =
      static_cast<double>(count_parameters(*run.plan->model).trainable.count());
  const double part = trainable / static_cast<double>(run.plan->degrees.partition());
  const double piece = std::min(static_cast<double>(*group), part);
  const double pool = static_cast<double>(*buffers) * 4.0 * piece *
                      static_cast<double>(run.cluster->gpus_per_node());
  if (pool < kShare * bytes_of(run.cluster->node.host_memory.value)) return;
  report.at(Knob::sub_group_size,
            {std::to_string(*buffers),
             std::to_string(*group),
             gibibytes(pool),
             gibibytes(bytes_of(run.cluster->node.host_memory.value))});
}

// The prediction of the same run with another file; nothing where that cannot be planned.
std::optional<StepResult> with_file(const Run& run, const DsConfig& config) {
  const Prepared prepared{.model = run.plan->model,
                          .cluster = std::make_shared<const Cluster>(*run.cluster),
                          .ds_config = std::make_shared<const DsConfig>(config),
                          .profile = run.plan->profile};
  try {
    return run.result_of(resolve(run.scenario, prepared));
  } catch (const InputError&) {
    return std::nullopt;
  }
}

bool offloads(const Run& run) {
  return run.file.stage() > 0 && (run.file.is_offloaded(Knob::offload_optimizer_device) ||
                                  run.file.is_offloaded(Knob::offload_param_device));
}

void offload_unneeded(const Run& run, Report& report) {
  if (!offloads(run)) return;
  DsConfig config = run.file.config();
  config.set(Knob::offload_optimizer_device, std::string("none"));
  config.set(Knob::offload_param_device, std::string("none"));
  config.unset(Knob::offload_optimizer_ratio);
  const auto without = with_file(run, config);
  if (!without || !without->fits || without->step.total >= run.prediction->step.total) return;
  char faster[32];
  std::snprintf(faster, sizeof faster, "%.1f", run.prediction->step.total / without->step.total);
  report.at(Knob::offload_optimizer_device, {faster});
}

void frozen_held(const Run& run, Report& report) {
  const FrozenWeightsHeld held = frozen_weights_held(*run.plan);
  if (held.bytes == Bytes::zero()) return;
  const int text = held.by_products         ? (held.spared_by_release ? 3 : 2)
                   : held.spared_by_setting ? 0
                                            : 1;
  report.at(Knob::zero_stage, {gibibytes(bytes_of(held.bytes))}, text);
}

// What the release at hand gets wrong for this run (model/releases.hpp).
void release_trap(const Run& run, Report& report) {
  const Plan& plan = *run.plan;
  if (plan.workload.engine != TrainingEngine::deepspeed) return;
  const Version& release = plan.software.deepspeed_release;
  const EngineConfig& engine = plan.engine;
  const bool recomputes = plan.workload.activation_checkpointing != ActivationCheckpointing::none &&
                          !plan.workload.checkpoint_reentrant;
  if (engine.stage == 3 && recomputes && engine.acts(ReleaseRule::misses_recomputed_ends)) {
    const Version& mended = release_row(ReleaseRule::misses_recomputed_ends).until;
    report.at(Knob::zero_stage, {to_string(release), to_string(mended)});
  }
  // As of NVMe, whose optimizer counts as not offloaded at stage 1 (engine/partition.cpp).
  const bool whole = engine.model_dtype == DType::bf16 &&
                     engine.gradient_accumulation_dtype == DType::fp32 &&
                     engine.offload_optimizer.device != OffloadDevice::cpu;
  if (engine.stage == 1 && whole && engine.acts(ReleaseRule::stage1_without_zero)) {
    report.at(Knob::data_types_grad_accum_dtype, {to_string(release)}, 1);
  }
  const std::int64_t shard = engine.stage3.mics_shard_size;
  if (engine.stage == 3 && shard > 0 && shard < engine.data_parallel_ranks &&
      engine.acts(ReleaseRule::mics_reduces_over_all)) {
    report.as(Severity::error, Knob::mics_shard_size, {to_string(release)}, 2);
  }
}

constexpr std::array kPlanRules = {
    RunRule{{.code = "plan-refused",
             .severity = Severity::error,
             .use = RuleUse::advice,
             .needs = kNeedsCluster | kNeedsModel,
             .summary = "the releases and the trainer run what the file says",
             .cost = "the run stops before or in its first step",
             .texts = {{"expected {0}, got {1}", "{2}"}},
             .source = "each where it is refused (model/plan)"},
            refused_plan},
    RunRule{{.code = "releases-apart",
             .severity = Severity::error,
             .use = RuleUse::advice,
             .needs = kNeedsPlan,
             .summary = "the releases go together, with the GPU and with the model",
             .cost = "the import, or loading the model, stops",
             .texts = {{"{0}", "other releases: docs/software.md has sets that were tried"}},
             .source = "configs/software.json"},
            releases_apart},
    RunRule{
        {.code = "out-of-memory",
         .use = RuleUse::advice,
         .needs = kNeedsPlan,
         .summary = "the run fits, with a probability of 95 %",
         .cost = "hours of a rented machine until it runs out of memory",
         .texts = {{"the GPU needs {0} GiB and a margin of {4} GiB, and has {1} GiB; the largest "
                    "part: {2}",
                    "tried, and it fits: {3}"},
                   {"the host needs {0} GiB and a margin of {4} GiB, and has {1} GiB; the largest "
                    "part: {2}",
                    "tried, and it fits: {3}"},
                   {"the NVMe disk needs {0} GiB and has {1} GiB; the largest part: {2}",
                    "tried, and it fits: {3}"},
                   {"the GPU needs {0} GiB and a margin of {4} GiB, and has {1} GiB; the largest "
                    "part: {2}",
                    "zeroplan fit compares what would fit"},
                   {"the host needs {0} GiB and a margin of {4} GiB, and has {1} GiB; the largest "
                    "part: {2}",
                    "zeroplan fit compares what would fit"},
                   {"the NVMe disk needs {0} GiB and has {1} GiB; the largest part: {2}",
                    "zeroplan fit compares what would fit"},
                   {"it fits if a node has {0} GiB of host memory; such nodes usually have {1} GiB",
                    "say --host-memory, or take what zeroplan fit finds for the usual node"}},
         .source = "docs/model.md"},
        out_of_memory},
    RunRule{{.code = "weight-buffers",
             .severity = Severity::error,
             .use = RuleUse::advice,
             .needs = kNeedsPlan,
             .summary = "weights on NVMe have a buffer each while they are gathered or read ahead",
             .cost = "DeepSpeed stops by an assertion, mostly in the second step",
             .texts = {{"{0}", "{1}"}},
             .source = "runtime/swap_tensor/partitioned_param_swapper.py:swap_in; DeepSpeed#3062"},
            weight_buffers},
    RunRule{
        {.code = "swap-pool",
         .use = RuleUse::advice,
         .needs = kNeedsPlan,
         .summary = "the buffers for NVMe leave the host its memory",
         .cost = "locked host memory: the kernel kills the processes, or the page cache is gone",
         .texts = {{"{0} buffers of up to {1} elements on every GPU lock {2} GiB of the node's "
                    "{3} GiB",
                    "use a sub_group_size of 1e8"}},
         .source = "runtime/swap_tensor/optimizer_utils.py:SwapBufferManager"},
        swap_pool},
    RunRule{{.code = "offload-unneeded",
             .severity = Severity::info,
             .use = RuleUse::advice,
             .needs = kNeedsPlan,
             .summary = "offload is used where the GPU does not suffice",
             .cost = "copies and a step on the CPU for nothing",
             .texts = {{"it fits without offload, and is {0} times as fast",
                        "remove offload_optimizer and offload_param"}},
             .source = "docs/model.md; DeepSpeed#2998, #6834"},
            offload_unneeded},
    RunRule{{.code = "frozen-weights-held",
             .use = RuleUse::advice,
             .needs = kNeedsPlan,
             .summary = "frozen weights are released block by block in backward, too",
             .cost = "every GPU holds the whole base model at the end of backward, as without "
                     "stage 3",
             .texts = {{"reentrant checkpointing keeps {0} GiB of frozen weights gathered to the "
                        "end of backward since DeepSpeed 0.19",
                        "use_reentrant=False in gradient_checkpointing_kwargs "
                        "(--checkpoint-reentrant false), or DeepSpeed 0.18"},
                       {"reentrant checkpointing keeps {0} GiB of frozen weights gathered to the "
                        "end of backward since DeepSpeed 0.19",
                        "DeepSpeed 0.18: neither TRL with adapters at stage 3 nor bitsandbytes "
                        "gains by use_reentrant=False"},
                       {"bitsandbytes keeps {0} GiB of four-bit weights gathered from the forward "
                        "pass to the end of backward",
                        "use_reentrant=True in gradient_checkpointing_kwargs "
                        "(--checkpoint-reentrant true)"},
                       {"bitsandbytes keeps {0} GiB of four-bit weights gathered from the forward "
                        "pass to the end of backward",
                        "use_reentrant=True in gradient_checkpointing_kwargs "
                        "(--checkpoint-reentrant true) and DeepSpeed 0.18"}},
             .source = "runtime/zero/partitioned_param_coordinator.py:update_recompute_parameters; "
                       "bitsandbytes autograd/_functions.py:MatMul4Bit"},
            frozen_held},
    RunRule{
        {.code = "release-trap",
         .use = RuleUse::advice,
         .needs = kNeedsPlan,
         .summary = "the release of DeepSpeed has no known fault that this run meets",
         .cost = "several times the memory that ZeRO was to need, or wrong gradients, without a "
                 "message",
         .texts = {{"DeepSpeed {0} keeps the weights of every recomputed layer gathered until the "
                    "step",
                    "upgrade to {1} or later, or use reentrant checkpointing "
                    "(--checkpoint-reentrant true)"},
                   {"DeepSpeed {0} does not shard at stage 1 in bf16 with fp32 accumulation: "
                    "optimizer states are whole on every GPU",
                    "upgrade to 0.18.9 or later, or remove grad_accum_dtype"},
                   {"DeepSpeed {0} reduces the gradients of MiCS over all ranks: they are wrong",
                    "remove mics_shard_size, or run DeepSpeed 0.18"}},
         .source = "runtime/zero/parameter_offload.py:ds_grads_remaining; "
                   "runtime/engine.py:_configure_optimizer; "
                   "runtime/zero/stage3.py:_get_param_partition_group"},
        release_trap},
};

}  // namespace

std::span<const RunRule> plan_rules() { return kPlanRules; }

}  // namespace zeroplan::rules
