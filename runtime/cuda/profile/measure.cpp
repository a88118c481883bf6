// The parts in their order: NVML and the context's size before anything else, launches before
// CUPTI is loaded, collectives, which touch other GPUs, last.
#include <array>
#include <exception>

#include <fmt/format.h>

#include "runtime/cuda/cuda_check.hpp"
#include "runtime/cuda/gpu_profile.hpp"
#include "runtime/cuda/hardware.hpp"
#include "runtime/cuda/kernels/cuda_kernels.hpp"
#include "runtime/cuda/profile/bench.hpp"

namespace zeroplan::runtime::cuda {
namespace {

std::string bus_id() {
  std::array<char, 32> text{};
  ZP_CUDA(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), 0));
  return text.data();
}

std::int64_t free_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  ZP_CUDA(cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(free);
}

// Makes the context.
GpuFacts facts_of(const Nvml& nvml) {
  cudaDeviceProp about{};
  ZP_CUDA(cudaGetDeviceProperties(&about, 0));
  std::size_t free = 0;
  std::size_t total = 0;
  ZP_CUDA(cudaMemGetInfo(&free, &total));
  GpuFacts facts;
  facts.name = about.name;
  facts.visible = static_cast<int>(find_gpus().found.size());
  facts.memory = Bytes::of(static_cast<std::int64_t>(total));
  facts.free_memory = Bytes::of(static_cast<std::int64_t>(free));
  facts.major = about.major;
  facts.minor = about.minor;
  facts.multiprocessors = about.multiProcessorCount;
  facts.l2 = Bytes::of(about.l2CacheSize);
  facts.driver = nvml.driver();
  facts.libraries = built_with();
  facts.pcie_generation = nvml.pcie_generation().value_or(0);
  facts.pcie_lanes = nvml.pcie_lanes().value_or(0);
  facts.nvlinks = nvml.active_nvlinks().value_or(-1);
  facts.clock_limit_megahertz = nvml.clock_limit_megahertz().value_or(0.0);
  facts.power_limit_watts = nvml.power_limit_watts().value_or(0.0);
  return facts;
}

ProfileRow once(const char* what, const char* how, std::int64_t bytes) {
  ProfileRow row{
      what, {{"by", Json(how)}}, "bytes", spread_of({static_cast<double>(bytes)}, 0), 0.0};
  return row;
}

// What the GPU counts more after the context was made: only NVML saw it before.
void context_row(GpuFindings& findings,
                 const std::optional<Bytes>& before,
                 const std::optional<Bytes>& after) {
  const GpuFacts& facts = findings.facts;
  if (before && after) {
    findings.rows.push_back(
        once("gpu_context", "NVML, the GPU's memory in use", (*after - *before).count()));
    if (before->count() > facts.memory.count() / 20) {
      findings.notes.push_back(fmt::format(
          "{:.1f} GB of the GPU were in use before: another process works on it, times may be its",
          static_cast<double>(before->count()) / 1e9));
    }
    return;
  }
  findings.notes.push_back(
      fmt::format("the context's size is not known without NVML: {:.2f} GB are not free with it, "
                  "which other processes may share",
                  static_cast<double>((facts.memory - facts.free_memory).count()) / 1e9));
}

// What the first product loads, cuBLASLt's kernels, beside the workspace and its operands.
void library_row(Bench& bench) {
  const std::int64_t before = free_memory();
  const auto kernels = cuda_kernels(bench.stream());
  constexpr std::int64_t kSide = 64;
  const KernelCall call = linear_call(Kernel::linear_forward, kSide, kSide, kSide);
  const std::int64_t bytes = kSide * kSide * width(DType::fp32);
  const DeviceMemory memory(3 * bytes);
  ZP_CUDA(cudaMemsetAsync(memory.data(), 0, static_cast<std::size_t>(3 * bytes), bench.stream()));
  std::vector<Operand> operands;
  for (std::int64_t i = 0; i < 3; ++i) {
    operands.push_back({memory.data() + i * bytes, Elements::of(kSide * kSide), DType::fp32});
  }
  operands.push_back({nullptr, Elements::zero(), DType::fp32});
  kernels->run(call, operands);
  ZP_CUDA(cudaStreamSynchronize(bench.stream()));
  bench.findings.rows.push_back(once("gpu_product_library",
                                     "cudaMemGetInfo, less the workspace",
                                     before - free_memory() - workspace_bytes().count()));
}

}  // namespace

GpuFindings measure_gpus(const GpuScale& scale,
                         const std::function<void(const std::string&)>& progress) {
  const Nvml nvml(bus_id());
  const std::optional<Bytes> before = nvml.used_memory();
  ZP_CUDA(cudaSetDevice(0));
  const GpuFacts facts = facts_of(nvml);
  const std::optional<Bytes> after = nvml.used_memory();

  Bench bench(scale, nvml);
  bench.findings.facts = facts;
  if (!nvml.found()) {
    bench.findings.notes.push_back("the GPU's clock is not known: " + nvml.problem());
  }
  context_row(bench.findings, before, after);
  const auto part = [&](const char* what, const std::function<void()>& measure) {
    if (progress) progress(what);
    try {
      measure();
    } catch (const std::exception& problem) {
      bench.findings.notes.push_back(fmt::format("{}: ended early: {}", what, problem.what()));
    }
  };
  part("launches on the GPU", [&] { measure_launches(bench); });
  part("copies between host and GPU", [&] { measure_copies(bench); });
  part("allocations of GPU and pinned memory", [&] { measure_allocations(bench); });
  part("the product library's memory", [&] { library_row(bench); });
  part("matrix products on the GPU", [&] { measure_products(bench); });
  part("attention on the GPU", [&] { measure_attention(bench); });
  if (const std::string by = attention_by(); !by.empty()) {
    bench.findings.notes.push_back("attention on the GPU, " + by);
  }
  part("kernels bound by the GPU's memory", [&] { measure_memory_kernels(bench); });
  part("collectives between GPUs", [&] { measure_nccl(bench, facts.visible); });
  if (facts.visible > 1) {
    bench.findings.notes.push_back(
        fmt::format("{} GPUs are visible; kernels and copies are the first one's", facts.visible));
  }
  return std::move(bench.findings);
}

}  // namespace zeroplan::runtime::cuda
