// What a launch costs the host, there and back, and the least that a kernel takes of the GPU.
#include <utility>
#include <vector>

#include "runtime/cuda/cuda_check.hpp"
#include "runtime/cuda/kernels/cuda_kernels.hpp"
#include "runtime/cuda/profile/bench.hpp"

namespace zeroplan::runtime::cuda {

void measure_launches(Bench& bench) {
  const Repetition& repetition = bench.scale().isolated;
  const std::int64_t count = bench.scale().launches;
  cudaStream_t stream = bench.stream();
  const auto add = [&](const char* what,
                       std::vector<std::pair<std::string, Json>> settings,
                       std::vector<double> seconds) {
    bench.findings.rows.push_back(
        bench.row(what, std::move(settings), "s", std::move(seconds), repetition.discard));
  };

  // Fewer than the driver's queue takes (1024) before it holds the host up.
  const auto settle = [&] { ZP_CUDA(cudaStreamSynchronize(stream)); };
  const auto launches = [&] {
    for (std::int64_t i = 0; i < count; ++i) run_empty_kernel(stream);
  };
  std::vector<double> each = repeat(launches, repetition, settle);
  for (double& seconds : each) seconds /= static_cast<double>(count);
  settle();
  add("gpu_launch", {{"launches", Json(count)}, {"clock", Json("host")}}, std::move(each));

  const auto there_and_back = [&] {
    run_empty_kernel(stream);
    ZP_CUDA(cudaStreamSynchronize(stream));
  };
  add("gpu_launch_round_trip", {{"clock", Json("host")}}, repeat(there_and_back, repetition));

  // In a row behind memsets that last longer than the host takes to order them.
  constexpr std::int64_t kCalls = 16;
  constexpr int kCovers = 4;
  add("gpu_empty_kernel",
      {{"kernels", Json(kCalls)}},
      bench.in_a_row([&] { run_empty_kernel(stream); }, kCalls, kCovers));
  const std::int64_t elements = 256;
  const DeviceMemory memory(2 * elements * width(DType::fp32));
  const auto addition = [&] {
    add_to(stream,
           memory.data(),
           DType::fp32,
           memory.data() + elements * width(DType::fp32),
           DType::fp32,
           Elements::of(elements));
  };
  ZP_CUDA(cudaMemsetAsync(
      memory.data(), 0, static_cast<std::size_t>(2 * elements * width(DType::fp32)), stream));
  add("gpu_kernel_floor",
      {{"kernels", Json(kCalls)}, {"elements", Json(elements)}},
      bench.in_a_row(addition, kCalls, kCovers));
}

}  // namespace zeroplan::runtime::cuda
