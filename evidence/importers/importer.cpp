#include "evidence/importers/importer.hpp"

#include <array>

#include "evidence/importers/deepspeed_lines.hpp"
#include "evidence/importers/hf_lines.hpp"
#include "evidence/importers/kineto.hpp"
#include "evidence/importers/machine_lines.hpp"
#include "evidence/importers/megatron_lines.hpp"
#include "evidence/importers/memory_snapshot_import.hpp"
#include "evidence/importers/unpickle.hpp"

namespace zeroplan::evidence {
namespace {

constexpr Importer line_format(std::string_view format,
                               std::string_view what,
                               std::unique_ptr<LogLineReader> (*lines)()) {
  Importer importer{format, what, "lines"};
  importer.lines = lines;
  return importer;
}

constexpr Importer document_format(std::string_view format,
                                   std::string_view what,
                                   Importer::Document document) {
  Importer importer{format, what, "documents"};
  importer.document = document;
  return importer;
}

constexpr Importer bytes_format(std::string_view format,
                                std::string_view what,
                                Importer::Binary bytes) {
  Importer importer{format, what, "documents"};
  importer.bytes = bytes;
  return importer;
}

// The configuration comes first: lines of its document look like nothing.
constexpr std::array kImporters = {
    line_format("deepspeed-config", "DeepSpeed's printed configuration", deepspeed_config_lines),
    line_format("megatron-arguments", "Megatron's printed arguments", megatron_argument_lines),
    line_format("deepspeed-memory", "DeepSpeed's see_memory_usage", deepspeed_memory_lines),
    line_format("deepspeed-timers", "DeepSpeed's wall-clock breakdown", deepspeed_timer_lines),
    line_format("deepspeed-throughput", "DeepSpeed's throughput timer", deepspeed_throughput_lines),
    line_format("deepspeed-flops", "DeepSpeed's flops profiler", deepspeed_flops_lines),
    line_format("hf-trainer", "the Trainer's lines", hf_trainer_lines),
    line_format("llama-factory", "LLaMA-Factory's trainer_log", llama_factory_lines),
    line_format("tqdm", "tqdm's bars", tqdm_lines),
    line_format("megatron-iterations", "Megatron's iterations", megatron_iteration_lines),
    line_format("megatron-memory", "Megatron's memory report", megatron_memory_lines),
    line_format("nccl-tests", "nccl-tests", nccl_tests_lines),
    line_format("nvidia-smi", "nvidia-smi", nvidia_smi_lines),
    document_format(
        "hf-trainer-state", "the Trainer's state", {is_trainer_state, read_trainer_state}),
    document_format("kineto", "PyTorch's profiler", {is_kineto_trace, read_kineto_trace}),
    bytes_format("memory-snapshot", "PyTorch's memory snapshot", {is_pickle, read_memory_snapshot}),
};

}  // namespace

std::span<const Importer> importers() { return kImporters; }

}  // namespace zeroplan::evidence
