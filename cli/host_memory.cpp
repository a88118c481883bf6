#include "cli/host_memory.hpp"

#include <algorithm>
#include <filesystem>

#include "cli/table.hpp"
#include "model/engine/buffers.hpp"
#include "runtime/memory/available_memory.hpp"

namespace zeroplan::cli {
namespace {

// Program, libraries and threads' stacks, of each process.
constexpr Bytes kProcess = Bytes::mib(64);

std::int64_t local_processes(const EmbeddedRun& run) {
  return run.group.ranks > 1 ? run.group.local_ranks : 1;
}

std::int64_t local_ranks(const EmbeddedRun& run) {
  return run.group.ranks > 1 ? run.group.local_ranks : run.plan.engine.data_parallel_ranks;
}

// What of a buffer is ever written: no more than the model fills, twice over. A page that nobody
// writes to is not taken, and a bucket of DeepSpeed's size has gigabytes of them for a small model.
Bytes filled(Bytes allocated, const Plan& plan) {
  const Bytes weights = count_parameters(*plan.model).total * DType::fp32;
  return std::min(allocated, weights * 2);
}

// A rank's offloaded state and staging buffers.
Bytes offloaded(const Plan& plan) {
  Bytes total;
  for (const EngineBuffer& buffer : engine_buffers(plan.engine, plan.engine_parameters)) {
    const bool on_host =
        buffer.place == BufferPlace::host_pinned || buffer.place == BufferPlace::host_pageable;
    if (on_host) total += filled(buffer.allocated, plan);
  }
  return total;
}

// Two bytes a token; of text a byte is one.
Bytes tokens_of(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > (std::uintmax_t{1} << 60)) return Bytes::zero();  // said where it is read
  const Bytes bytes = Bytes::of(static_cast<std::int64_t>(size));
  return path.ends_with(".bin") ? bytes : bytes * 2;
}

std::optional<Bytes> said_memory(const Arguments& arguments) {
  for (const auto& [flag, value] : arguments.cluster_changes) {
    if (flag->key == "host_memory_bytes") return Bytes::nearest(value.as_number());
  }
  return std::nullopt;
}

}  // namespace

Bytes host_memory_needed(const EmbeddedRun& run, const Arguments& arguments, Bytes capacity) {
  Bytes rank = offloaded(run.plan);
  if (!run.on_gpus()) {
    const GpuMemory& predicted = run.predicted.gpu;
    const Bytes buckets = at(predicted.breakdown_at_peak, MemoryCategory::communication_buffers);
    rank += std::min(predicted.peak_allocated - buckets + filled(buckets, run.plan), capacity);
  }
  Bytes process = kProcess;
  if (const auto data = arguments.text("data")) process += tokens_of(*data);
  return rank * local_ranks(run) + process * local_processes(run);
}

std::optional<Diagnostic> lacking_host_memory(const EmbeddedRun& run,
                                              const Arguments& arguments,
                                              Bytes capacity) {
  const auto said = said_memory(arguments);
  const Bytes available = said ? *said : runtime::available_host_memory();
  const Bytes needed = host_memory_needed(run, arguments, capacity);
  if (needed <= available) return std::nullopt;
  const std::string limit = gib_text(available);
  return Diagnostic{
      kCommandLine,
      said ? "--host-memory" : "",
      phrase("training that takes at most {} of host memory, what is available", limit),
      phrase("{} for {} ranks", gib_text(needed), local_ranks(run)),
      said ? "fewer ranks, a smaller model or a smaller micro-batch take less"
           : "fewer ranks, a smaller model or a smaller micro-batch take less; "
             "--host-memory SIZE where this machine has more than it reports"};
}

}  // namespace zeroplan::cli
