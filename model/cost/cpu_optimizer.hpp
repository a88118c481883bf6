// Time of what the CPUs of a node do in an offloaded step, all ranks at once: Adam, and torch's
// passes over host memory (scaling of gradients, casts, scans).
//
// Units: Elements (parameters of one rank), Bytes (read and written by one rank), Seconds.
#pragma once

#include "model/cost/coefficients.hpp"
#include "model/dtype.hpp"
#include "model/hardware/hardware.hpp"

namespace zeroplan {

struct HostLoad {
  std::int64_t ranks = 1;  // of the node, working at the same time
  bool bound = false;      // `deepspeed --bind_cores_to_rank`, or a launcher that binds
  // OMP_NUM_THREADS of a rank; 0: not set, so that each rank starts a thread a core and ranks
  // share the cores.
  std::int64_t threads = 0;
};

// All ranks of the node, with the threads that the plan gives each.
HostLoad host_load(const Node& node);

// Threads at work for one rank: min(threads, cores / n). A share of one where ranks outnumber
// cores.
double threads_at_work(const Node& node, const HostLoad& load);

// [T21] Bytes a second that all n ranks of a node stream with torch's kernels:
//
//   B = min(n T b_core, D min(1, e / s)) / [n > 1, sockets > 1, unbound, no threads said] u
//
// T threads_at_work, b_core `host_pass_rate_per_core`, D the DRAM rate of the share s of the
// machine that the job has, e `host_pass_dram_efficiency`, u `cpu_adam_unbound_slowdown`. A whole
// machine's cores reach e of its memory's rate; a job on a slice of it is not held below what the
// slice is a share of. Source: STREAM triad by one thread on two machines; ZeRO-Offload tutorial
// (gradients of 10B scaled in 1.1 s). Left out: caches. Checked by
// tests/published/cpu_adam_test.cpp, tests/unit/model/cost/cluster_costs_test.cpp.
BytesPerSecond host_pass_rate(const Node& node,
                              const HostLoad& load,
                              const Coefficients& coefficients);

// Of one rank. `new_pages`: of temporaries past malloc's mmap threshold (at most 32 MiB), which the
// system maps anew for each call: its threads first touch them at `cpu_first_touch_rate` each, or
// at the rate above where that is less.
struct HostPass {
  Bytes traffic;  // read and written
  Bytes new_pages;
};
Seconds host_pass_time(const HostPass& pass,
                       const Node& node,
                       const HostLoad& load,
                       const Coefficients& coefficients);

enum class CpuAdamKernel {
  one_pass,  // DeepSpeedCPUAdam; torch's fused=True
  passes     // torch.optim's loop: a pass over memory for each operation
};

struct CpuAdamWork {
  Elements parameters;  // of one rank
  CpuAdamKernel kernel = CpuAdamKernel::one_pass;
  DType dtype = DType::fp32;  // of weights, gradients and moments
};

// [T14] Parameters a second of a whole node, in one pass:
//
//   R = min(n min(r_core T, r_process), D min(1, e / s) / M) / u, u as in [T21]
//
// r_core `cpu_adam_parameters_per_second_per_core`, r_process `cpu_adam_process_rate`, e
// `cpu_adam_dram_efficiency`, M `cpu_adam_bytes_per_parameter` (of 16-bit states half of it).
// In torch's passes as [T21] of 80 bytes a parameter, 8 of them on new pages: torch/optim/adamw.py
// _single_tensor_adamw goes over tensors in mul_ (8 bytes), lerp_ (12), mul_ (8), addcmul_ (12),
// sqrt (8), / (8), add_ (8) and addcdiv_ (16), and sqrt and / make new tensors; tensors on the CPU
// have no foreach kernels. Sources: csrc/includes/cpu_adam.h; arXiv:2101.06840, table 4;
// profiles/measured. Left out: the scalar loop that DeepSpeed's kernel takes for bf16 masters on
// processors without AVX-512, five times slower by one thread. Checked by
// tests/published/cpu_adam_test.cpp, tests/unit/model/cost/cluster_costs_test.cpp.
double cpu_adam_parameters_per_second(DType dtype,  // one pass
                                      const Node& node,
                                      const HostLoad& load,
                                      const Coefficients& coefficients);

Seconds cpu_adam_time(const CpuAdamWork& work,
                      const Node& node,
                      const HostLoad& load,
                      const Coefficients& coefficients);

// DRAM traffic of one rank's update.
Bytes cpu_adam_bytes(const CpuAdamWork& work, const Coefficients& coefficients);

}  // namespace zeroplan
