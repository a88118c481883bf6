// Rules about offload to NVMe; see rules.hpp.
#include <array>

#include "model/knobs/rule_view.hpp"

namespace zeroplan::rules {
namespace {

void nvme_path(const View& view, Report& report) {
  constexpr std::array kPairs = {
      std::pair{Knob::offload_param_device, Knob::offload_param_nvme_path},
      std::pair{Knob::offload_optimizer_device, Knob::offload_optimizer_nvme_path}};
  for (const auto& [device, path] : kPairs) {
    // Stages 1 and 2 treat nvme as cpu and need no path.
    if (view.stage() != 3 || view.text(device) != "nvme") continue;
    if (view.is_given(path) ||
        (view.config().is_auto(path) && view.context().style == ConfigStyle::hf_trainer)) {
      continue;
    }
    report.at(path);
  }
}

bool is_bf16_optimizer(const View& view) {
  return view.stage() == 1 && view.model_format() == "bf16" &&
         view.text(Knob::data_types_grad_accum_dtype) == "fp32";
}

void nvme_means_cpu(const View& view, Report& report) {
  if (view.stage() != 1 && view.stage() != 2) return;
  if (view.text(Knob::offload_optimizer_device) != "nvme") return;
  report.at(Knob::offload_optimizer_device,
            {std::to_string(view.stage())},
            is_bf16_optimizer(view) ? 1 : 0);
}

// Adam and Lion on the CPU hold two states besides the master copy, and the gradient comes too.
constexpr std::int64_t kBuffersOfAStep = 4;

bool swaps_two_states(const View& view) {
  const std::string name = view.optimizer();
  return name.empty() || name == "adam" || name == "adamw" || name == "lion";
}

std::int64_t swap_buffers(const View& view) {
  return view.integer(Knob::offload_optimizer_buffer_count).value_or(kBuffersOfAStep);
}

bool swaps_optimizer(const View& view) {
  return view.stage() == 3 && view.text(Knob::offload_optimizer_device) == "nvme";
}

void nvme_buffers(const View& view, Report& report) {
  if (!swaps_optimizer(view) || !swaps_two_states(view)) return;
  if (swap_buffers(view) >= kBuffersOfAStep) return;
  report.at(Knob::offload_optimizer_buffer_count, {std::to_string(swap_buffers(view))});
}

void nvme_pipeline_buffers(const View& view, Report& report) {
  if (!swaps_optimizer(view) || !swaps_two_states(view)) return;
  const bool read = view.is_on(Knob::offload_optimizer_pipeline_read);
  const bool write = view.is_on(Knob::offload_optimizer_pipeline_write);
  const std::int64_t wanted = kBuffersOfAStep * (1 + (read ? 1 : 0) + (write ? 1 : 0));
  const std::int64_t has = swap_buffers(view);
  if (has < kBuffersOfAStep || has >= wanted) return;
  report.at(Knob::offload_optimizer_buffer_count, {std::to_string(has), std::to_string(wanted)});
}

// _partition_param_sec makes the second copy on the device of the partitions by its name, and torch
// has no device "nvme": read in 0.12.6 to 0.19.6, the call tried with torch 2.6.
void nvme_secondary_partition(const View& view, Report& report) {
  if (view.stage() != 3 || view.text(Knob::offload_param_device) != "nvme") return;
  if (view.integer(Knob::zero_hpz_partition_size).value_or(1) <= 1) return;
  report.at(Knob::zero_hpz_partition_size);
}

constexpr std::array kNvmeRules = {
    Rule{{.code = "nvme-path-missing",
          .severity = Severity::error,
          .summary = "a device nvme at stage 3 has an nvme_path",
          .cost = "DeepSpeed stops",
          .texts = {{"the device is nvme and no nvme_path is given", "give the folder"}},
          .source = "runtime/zero/partition_parameters.py:Init._validate_remote_device"},
         nvme_path},
    Rule{
        {.code = "nvme-means-cpu",
         .summary = "the optimizer goes to NVMe only with stage 3",
         .cost = "what was to go to the disk needs host memory, or stays on the GPU",
         .texts = {{"at stage {0} the device nvme means cpu: states go to host memory, the disk is "
                    "not used",
                    "set the stage to 3, or write \"cpu\""},
                   {"at stage 1 with bf16 and fp32 accumulation the device nvme offloads nothing",
                    "set the stage to 3, or write \"cpu\""}},
         .source = "runtime/engine.py:zero_cpu_offload"},
        nvme_means_cpu},
    Rule{{.code = "nvme-second-copy",
          .severity = Severity::error,
          .summary = "hpZ's secondary partition of the weights has a device",
          .cost = "DeepSpeed stops: torch knows no device nvme",
          .texts = {{"hpZ's secondary partition would be made on the device nvme",
                     "remove zero_hpz_partition_size, or offload parameters to cpu"}},
          .source = "runtime/zero/partition_parameters.py:_partition_param_sec"},
         nvme_secondary_partition},
    Rule{{.code = "nvme-buffers",
          .severity = Severity::error,
          .summary = "an optimizer on NVMe has a buffer for master, two states and gradient",
          .cost = "the second step stops: no swap buffer is free",
          .texts = {{"buffer_count is {0}; Adam needs 4: master, two states, gradient",
                     "set buffer_count to 4 or more"}},
          .source = "runtime/swap_tensor/partitioned_optimizer_swapper.py:swap_in_optimizer_state"},
         nvme_buffers},
    Rule{{.code = "nvme-pipeline-buffers",
          .use = RuleUse::advice,
          .summary = "reading or writing ahead on NVMe has buffers for it",
          .cost = "\"PipelinedOptimizerSwapper ran out of swap buffers, try increasing "
                  "'buffer_count'\"",
          .texts = {{"buffer_count is {0}; with pipeline_read or pipeline_write up to {1} are in "
                     "use at once",
                     "set buffer_count to {1}, and mind the host memory: each is one sub-group"}},
          .source = "runtime/swap_tensor/pipelined_optimizer_swapper.py:_swap_in_optimizer_state"},
         nvme_pipeline_buffers},
};

}  // namespace

std::span<const Rule> nvme_rules() { return kNvmeRules; }

}  // namespace zeroplan::rules
