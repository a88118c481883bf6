#include "model/cost/cpu_optimizer.hpp"

#include <algorithm>

namespace zeroplan {

double cpu_adam_parameters_per_second(const Node& node,
                                      const CpuAdamLoad& load,
                                      const Coefficients& c) {
  const double ranks = static_cast<double>(std::max<std::int64_t>(1, load.ranks));
  const double cores = static_cast<double>(std::max<std::int64_t>(1, node.cpu_cores.value));
  double threads = cores / ranks;
  if (load.threads > 0) threads = std::min(threads, static_cast<double>(load.threads));
  const double by_cores =
      ranks * std::min(threads * c[Coefficient::cpu_adam_parameters_per_second_per_core],
                       c[Coefficient::cpu_adam_process_rate]);
  const double by_memory = node.host_memory_bandwidth.value.value() *
                           c[Coefficient::cpu_adam_dram_efficiency] /
                           c[Coefficient::cpu_adam_bytes_per_parameter];
  const bool wanders = !load.bound && load.ranks > 1;
  return std::min(by_cores, by_memory) /
         (wanders ? c[Coefficient::cpu_adam_unbound_slowdown] : 1.0);
}

Seconds cpu_adam_time(Elements parameters_of_a_rank,
                      const Node& node,
                      const CpuAdamLoad& load,
                      const Coefficients& c) {
  const double all = static_cast<double>(parameters_of_a_rank.count()) *
                     static_cast<double>(std::max<std::int64_t>(1, load.ranks));
  return Seconds::of(all / cpu_adam_parameters_per_second(node, load, c));
}

Bytes cpu_adam_bytes(Elements parameters_of_a_rank, const Coefficients& c) {
  return Bytes::nearest(static_cast<double>(parameters_of_a_rank.count()) *
                        c[Coefficient::cpu_adam_bytes_per_parameter]);
}

}  // namespace zeroplan
