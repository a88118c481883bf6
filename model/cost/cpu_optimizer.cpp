#include "model/cost/cpu_optimizer.hpp"

#include <algorithm>

namespace zeroplan {
namespace {

double ranks_of(const HostLoad& load) {
  return static_cast<double>(std::max<std::int64_t>(1, load.ranks));
}

// What all cores of the job reach of the DRAM's rate, e being the share of a whole machine's.
double dram_rate(const Node& node, double efficiency) {
  const double share = std::clamp(node.host_share, 1e-6, 1.0);
  return node.host_memory_bandwidth.value.value() * std::min(1.0, efficiency / share);
}

// Measured on machines of two sockets, where threads that wander leave their memory behind.
double slowdown(const Node& node, const HostLoad& load, const Coefficients& c) {
  const bool crowds = !load.bound && load.threads == 0 && load.ranks > 1 && node.cpu_sockets > 1;
  return crowds ? c[Coefficient::cpu_adam_unbound_slowdown] : 1.0;
}

// Bytes of fp32 that torch's loop streams, and those of its two temporaries.
constexpr double kTorchPasses = 80.0;
constexpr double kTorchTemporaries = 8.0;

double width_of_fp32(DType dtype) {
  const Bytes one = Elements::of(1) * dtype;
  return static_cast<double>(one.count()) / 4.0;
}

Bytes of_all(const CpuAdamWork& work, double bytes) {
  return Bytes::nearest(static_cast<double>(work.parameters.count()) * bytes *
                        width_of_fp32(work.dtype));
}

}  // namespace

HostLoad host_load(const Node& node) {
  return {.ranks = std::max<std::int64_t>(1, node.gpus_per_node),
          .bound = false,
          .threads = node.threads_per_rank};
}

double threads_at_work(const Node& node, const HostLoad& load) {
  const double cores = static_cast<double>(std::max<std::int64_t>(1, node.cpu_cores.value));
  const double share = cores / ranks_of(load);
  return load.threads > 0 ? std::min(share, static_cast<double>(load.threads)) : share;
}

BytesPerSecond host_pass_rate(const Node& node, const HostLoad& load, const Coefficients& c) {
  const double by_cores =
      ranks_of(load) * threads_at_work(node, load) * c[Coefficient::host_pass_rate_per_core];
  const double by_memory = dram_rate(node, c[Coefficient::host_pass_dram_efficiency]);
  return BytesPerSecond::of(std::min(by_cores, by_memory) / slowdown(node, load, c));
}

Seconds host_pass_time(const HostPass& pass,
                       const Node& node,
                       const HostLoad& load,
                       const Coefficients& c) {
  const double rate = host_pass_rate(node, load, c).value();
  const double touched =
      ranks_of(load) * threads_at_work(node, load) * c[Coefficient::cpu_first_touch_rate];
  return Seconds::of(ranks_of(load) *
                     (static_cast<double>(pass.traffic.count()) / rate +
                      static_cast<double>(pass.new_pages.count()) / std::min(rate, touched)));
}

Seconds cpu_adam_time(const CpuAdamWork& work,
                      const Node& node,
                      const HostLoad& load,
                      const Coefficients& c) {
  if (work.kernel == CpuAdamKernel::passes) {
    const HostPass pass{of_all(work, kTorchPasses), of_all(work, kTorchTemporaries)};
    return host_pass_time(pass, node, load, c);
  }
  const double all = static_cast<double>(work.parameters.count()) * ranks_of(load);
  return Seconds::of(all / cpu_adam_parameters_per_second(work.dtype, node, load, c));
}

double cpu_adam_parameters_per_second(DType dtype,
                                      const Node& node,
                                      const HostLoad& load,
                                      const Coefficients& c) {
  const double bytes = c[Coefficient::cpu_adam_bytes_per_parameter] * width_of_fp32(dtype);
  const double of_a_rank = std::min(
      threads_at_work(node, load) * c[Coefficient::cpu_adam_parameters_per_second_per_core],
      c[Coefficient::cpu_adam_process_rate]);
  const double by_memory = dram_rate(node, c[Coefficient::cpu_adam_dram_efficiency]) / bytes;
  return std::min(ranks_of(load) * of_a_rank, by_memory) / slowdown(node, load, c);
}

Bytes cpu_adam_bytes(const CpuAdamWork& work, const Coefficients& c) {
  return of_all(work,
                work.kernel == CpuAdamKernel::one_pass
                    ? c[Coefficient::cpu_adam_bytes_per_parameter]
                    : kTorchPasses);
}

}  // namespace zeroplan
