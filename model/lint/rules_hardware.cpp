// Rules about GPUs, nodes, the launcher and the release; see lint.hpp.
#include <array>
#include <cstdio>

#include <fmt/format.h>

#include "model/lint/run_view.hpp"
#include "model/plan/release_pairs.hpp"
#include "model/releases.hpp"

namespace zeroplan::rules {
namespace {

std::string gigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", bytes / 1e9);
  return text;
}

// Before Ampere torch either refuses bf16 or computes it in fp32.
void bf16_gpu(const Run& run, Report& report) {
  if (run.format() != "bf16" || run.cluster->gpu.bf16_supported) return;
  report.at(Knob::bf16_enabled, {run.cluster->gpu.name});
}

// [L1] Bytes of the buffers that gradients are reduced through.
//   B = RB b (1 + [overlap_comm, stages 1 and 2] + 1)
// RB reduce_bucket_size in elements; b bytes of the model's format. The last term is the flat copy
// that a bucket of several parameters is gathered into. Left out: buckets beyond RB for larger
// parameters.  Source:
// runtime/zero/stage_1_and_2.py:reduce_independent_p_g_buckets_and_remove_grads,
// runtime/comm/coalesced_collectives.py:reduce_scatter_coalesced.
void bucket_eats_gpu(const Run& run, Report& report) {
  constexpr double kShare = 0.15;
  const std::int64_t stage = run.file.stage();
  if (stage == 0 || run.cluster->gpu.is_cpu()) return;
  const std::optional<std::int64_t> size = run.size(Knob::reduce_bucket_size);
  if (!size) return;
  const double width = run.format() == "fp32" ? 4.0 : 2.0;
  const bool twice = stage < 3 && run.file.is_on(Knob::overlap_comm);
  const double bytes = static_cast<double>(*size) * width * (twice ? 3.0 : 2.0);
  const double gpu = static_cast<double>(run.cluster->gpu.memory.value.count());
  if (bytes < kShare * gpu) return;
  const double fitting = 0.05 * gpu / width;
  const std::int64_t better = fitting > 5e8   ? 500'000'000
                              : fitting > 2e8 ? 200'000'000
                                              : 50'000'000;
  report.at(Knob::reduce_bucket_size,
            {std::to_string(*size), gigabytes(bytes), gigabytes(gpu), std::to_string(better)},
            run.file.config().is_set(Knob::reduce_bucket_size) ? 0 : 1);
}

void hpz_node(const Run& run, Report& report) {
  const std::int64_t size = run.file.integer(Knob::zero_hpz_partition_size).value_or(1);
  if (run.file.stage() != 3 || size <= 1) return;
  const std::int64_t gpus = run.cluster->gpus_per_node();
  if (run.cluster->nodes == 1) {
    report.as(Severity::info, Knob::zero_hpz_partition_size, {}, 0);
  } else if (size > gpus) {
    report.at(Knob::zero_hpz_partition_size, {std::to_string(size), std::to_string(gpus)}, 1);
  }
}

void quantized_on_one_node(const Run& run, Report& report) {
  if (run.file.stage() != 3 || run.cluster->nodes > 1) return;
  if (run.file.is_on(Knob::zero_quantized_gradients)) report.at(Knob::zero_quantized_gradients);
}

void threads_of_cpu_adam(const Run& run, Report& report) {
  const bool by_torch = run.launcher == Launcher::torchrun || run.launcher == Launcher::accelerate;
  if (!by_torch || run.file.stage() == 0) return;
  if (!run.file.is_offloaded(Knob::offload_optimizer_device)) return;
  if (run.cluster != nullptr && run.cluster->gpus_per_node() == 1) return;
  report.at(Knob::offload_optimizer_device,
            {std::string(name(kLauncherNames, *run.launcher))},
            run.cluster != nullptr ? 1 : 0);
}

void overlap_release(const Run& run, Report& report) {
  const std::int64_t stage = run.file.stage();
  if ((stage != 1 && stage != 2) || !run.file.is_on(Knob::overlap_comm)) return;
  const Version release = *run.release;
  if (acts(ReleaseRule::reuses_bucket_too_early, release)) {
    report.at(Knob::overlap_comm, {to_string(release)}, 0);
  } else if (acts(ReleaseRule::waits_for_every_bucket, release)) {
    report.as(Severity::info, Knob::overlap_comm, {to_string(release)}, 1);
  }
}

// Both releases were said, and the file leaves values to the Trainer.
void release_pair(const Run& run, Report& report) {
  const auto said = run.said_text(ScenarioKey::transformers_version);
  const auto transformers = said ? parse_version(*said) : std::nullopt;
  if (!transformers || !run.release || !run.is_trainer()) return;
  const std::string deepspeed = to_string(*run.release);
  const std::int64_t steps =
      run.said_integer(ScenarioKey::gradient_accumulation_steps)
          .value_or(run.file.config().integer(Knob::gradient_accumulation_steps).value_or(1));
  if (stops_in_no_sync(*run.release, *transformers, steps)) {
    report.at(Knob::gradient_accumulation_steps,
              {deepspeed, to_string(*transformers), std::to_string(steps)});
  }
  const std::int64_t hidden = run.model == nullptr ? 0 : run.model->shape.hidden;
  if (hidden > 0 && run.file.stage() == 3 &&
      run.file.config().is_auto(Knob::stage3_prefetch_bucket_size) &&
      stops_at_fraction(*run.release, *transformers, hidden)) {
    const double filled = 0.9 * static_cast<double>(hidden) * static_cast<double>(hidden);
    report.at(Knob::stage3_prefetch_bucket_size,
              {deepspeed,
               to_string(*transformers),
               fmt::format("{:.1f}", filled),
               fmt::format("{:.0f}", filled)},
              1);
  }
}

constexpr std::array kHardwareRules = {
    RunRule{
        {.code = "bf16-gpu",
         .severity = Severity::error,
         .use = RuleUse::advice,
         .needs = kNeedsCluster,
         .summary = "bf16 runs on GPUs that have it (Ampere and newer)",
         .cost = "torch stops (\"Type bf16 is not supported on your device\"), or, since 2.4, "
                 "computes in fp32 at a fraction of the speed",
         .texts = {{"{0} has no bf16", "use fp16 with a model that was trained in fp16, or fp32"}},
         .source = "runtime/engine.py:_do_sanity_check"},
        bf16_gpu},
    RunRule{{.code = "bucket-eats-card",
             .use = RuleUse::advice,
             .needs = kNeedsCluster,
             .summary = "the buffers of gradient reduction are a small part of the GPU",
             .cost = "memory that activations or a larger micro-batch could use",
             .texts = {{"reduce_bucket_size {0} takes {1} GB of the GPU's {2} GB in buffers "
                        "(overlap_comm doubles it at stages 1 and 2)",
                        "use {3} elements"},
                       {"reduce_bucket_size is {0} by default and takes {1} GB of the GPU's {2} GB "
                        "in buffers (overlap_comm doubles it at stages 1 and 2)",
                        "set it to {3} elements"}},
             .source = "runtime/zero/stage_1_and_2.py; DeepSpeed#467"},
            bucket_eats_gpu},
    RunRule{
        {.code = "hpz-node",
         .use = RuleUse::advice,
         .needs = kNeedsCluster,
         .summary = "zero_hpz_partition_size is the number of GPUs of a node, and there are "
                    "several nodes",
         .cost = "a secondary partition of the weights is kept and saves no traffic between nodes",
         .texts =
             {{"hpZ keeps a secondary partition of the weights to spare the network between nodes, "
               "and there is one node",
               "remove zero_hpz_partition_size"},
              {"zero_hpz_partition_size {0} spans nodes of {1} GPUs: its gathers cross the "
               "network it should spare",
               "set it to {1}"}},
         .source = "runtime/zero/partition_parameters.py:ds_secondary_tensor"},
        hpz_node},
    RunRule{{.code = "quantized-gradients-one-node",
             .use = RuleUse::advice,
             .needs = kNeedsCluster,
             .summary = "zero_quantized_gradients has a network between nodes to spare",
             .cost = "rounding of gradients for nothing",
             .texts = {{"gradients are quantised to spare the network between nodes, and there is "
                        "one node",
                        "remove zero_quantized_gradients"}},
             .source = "runtime/comm/coalesced_collectives.py:all_to_all_quant_reduce"},
            quantized_on_one_node},
    RunRule{
        {.code = "omp-threads",
         .use = RuleUse::advice,
         .needs = kNeedsLauncher,
         .summary = "CPU Adam has threads: OMP_NUM_THREADS is set under torchrun",
         .cost = "torchrun sets OMP_NUM_THREADS=1 for more than one process a node: the CPU "
                 "step of all parameters runs on one core",
         .texts = {{"{0} gives each process one thread unless OMP_NUM_THREADS is set, and the "
                    "optimizer steps on the CPU",
                    "export OMP_NUM_THREADS=<cores / GPUs of the node>, or start with deepspeed "
                    "--bind_cores_to_rank"},
                   {"{0} gives each process one thread unless OMP_NUM_THREADS is set, and the "
                    "optimizer steps on the CPU",
                    "export OMP_NUM_THREADS=<cores / GPUs of the node>, or start with deepspeed "
                    "--bind_cores_to_rank"}},
         .source = "torch/distributed/run.py:config_from_args; DeepSpeed#7474"},
        threads_of_cpu_adam},
    RunRule{
        {.code = "release-pair",
         .severity = Severity::error,
         .use = RuleUse::advice,
         .needs = kNeedsRelease,
         .summary = "the releases of DeepSpeed and transformers reach the first step together",
         .cost = "the run stops before its first step, and nothing is wrong with the file",
         .texts = {{"DeepSpeed {0} has no_sync and transformers {1} enters it: accumulation of {2} "
                    "stops in the first micro-step",
                    "transformers 4.47.1 or newer, DeepSpeed 0.15.4, or no accumulation"},
                   {"transformers {1} fills \"auto\" with {2}, which DeepSpeed {0} refuses as no "
                    "whole number",
                    "write {3}, or transformers 4.45 or newer, or DeepSpeed 0.14"}},
         .source = "DeepSpeed#6793; transformers#35157, #33402"},
        release_pair},
    RunRule{{.code = "overlap-release",
             .severity = Severity::error,
             .use = RuleUse::advice,
             .needs = kNeedsRelease,
             .summary = "overlap_comm at stages 1 and 2 runs on a release where it is sound",
             .cost = "0.17.2 to 0.17.4 corrupt gradients without a word; 0.17.5 to 0.18.4 do not "
                     "overlap",
             .texts = {{"overlap_comm at this stage corrupts gradients in DeepSpeed {0}",
                        "upgrade, or set overlap_comm to false"},
                       {"overlap_comm at this stage does not overlap in DeepSpeed {0}",
                        "upgrade to 0.18.5 or later"}},
             .source = "DeepSpeed#6993, #7371, #7805"},
            overlap_release},
};

}  // namespace

std::span<const RunRule> hardware_rules() { return kHardwareRules; }

}  // namespace zeroplan::rules
