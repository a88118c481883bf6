// Time of Adam on the CPU (DeepSpeedCPUAdam), run by all ranks of a node at once.
//
// Units: Elements (parameters of one rank), Seconds.
#pragma once

#include "model/cost/coefficients.hpp"
#include "model/hardware/hardware.hpp"

namespace zeroplan {

struct CpuAdamLoad {
  std::int64_t ranks = 1;  // of the node, updating at the same time
  bool bound = false;      // `deepspeed --bind_cores_to_rank`, or a launcher that binds
  // OMP_NUM_THREADS of a rank; 0: the cores divided by the ranks, as DeepSpeed's launcher sets it
  // with binding and as unbound ranks share them.
  std::int64_t threads = 0;
};

// [T14] Parameters a second of a whole node:
//
//   R = min(n min(r_core T, r_process), e D / 30 bytes) / [unbound and n > 1] 1.25
//   T = min(threads, cores / n)
//
// n ranks, T cores a rank has (a share of one where ranks outnumber cores), r_core
// `cpu_adam_parameters_per_second_per_core`, r_process `cpu_adam_process_rate`, D DRAM rate, e
// `cpu_adam_dram_efficiency`, 30 bytes moved a parameter. Source: ZeRO-Offload tutorial (10B on a
// DGX-2: 1.54-1.61e9 parameters/s of one process), DeepSpeed pull requests 735 and 7474. Left out:
// other work of the same cores. Checked by tests/published/cpu_adam_test.cpp.
double cpu_adam_parameters_per_second(const Node& node,
                                      const CpuAdamLoad& load,
                                      const Coefficients& coefficients);

Seconds cpu_adam_time(Elements parameters_of_a_rank,
                      const Node& node,
                      const CpuAdamLoad& load,
                      const Coefficients& coefficients);

// DRAM traffic of one rank's update.
Bytes cpu_adam_bytes(Elements parameters_of_a_rank, const Coefficients& coefficients);

}  // namespace zeroplan
