// Time of what the embedded runtime does on CPU ranks: ranks that are threads of one process, each
// with its own threads, and nothing beside anything else. A call is no launch: it costs what it
// computes.
//
// Units: Seconds, Bytes, Elements.
#pragma once

#include "model/cost/coefficients.hpp"
#include "model/cost/collective.hpp"
#include "model/dtype.hpp"
#include "model/graph/kernel_call.hpp"
#include "model/hardware/hardware.hpp"

namespace zeroplan {

// How a node's C hardware threads are divided over its n ranks, as the embedded runtime does it:
// T = max(1, floor(C / n)) threads a rank; where ranks outnumber them, each runs C / n of the time.
struct CpuShare {
  double ranks = 1.0;
  double threads = 1.0;   // of a rank
  double slowdown = 1.0;  // of everything a rank does: max(1, n T / C)
  double busy = 1.0;      // threads that work at the same time, of all ranks: min(n, C)
};
CpuShare cpu_share(const Node& node);

class CpuRankTimes {
 public:
  CpuRankTimes(const Node& node, const Coefficients& coefficients);

  // [T19] A kernel of the embedded runtime, w its thread's seconds in q tasks:
  //
  //   t = (w max(ceil(q / T) / q, 1 / (1 + (T - 1) g)) + regions [q > 1, T > 1] t_parallel)
  //   slowdown
  //
  //   products   w = 2 m n k / P + a numbers packed into tiles + a' those from a transposed matrix
  //              (A once for each 128 columns of the result, B once for each 128 rows)
  //   attention  w = V (2 p D / P + e s) + pack,  V scores of the blocks of 64 that causality
  //              leaves, p products (2 forward, 7 backward), e exponentials (1, 2)
  //   others     w = elements times the kernel's coefficient, or its bytes as a stream ([T20])
  //
  // and for each 16-bit number that is written (bf16) or read or written (fp16) its conversion. P,
  // a, a', s, g, t_parallel and the kernels' own: coefficients `cpu_*`. Source: the loops of
  // runtime/kernels/cpu_*.cpp, whose tiles, blocks and grains these are; 670 timings of them, one
  // thread, fp32, bf16 and fp16: median error 6 %, 95th percentile 50 % (lookups and sums in
  // caches). Left out: pages and huge pages, clocks that fall under AVX-512, the L1's
  // associativity. Checked by tests/unit/model/cost/cpu_rank_test.cpp.
  Seconds kernel(const KernelCall& call, DType dtype) const;

  // [T20] M bytes read and written by each rank, of which E elements change between fp32 and a
  // 16-bit type, in pieces of 2^17 elements that its threads share
  // (runtime/device/host_device.cpp):
  //
  //   t = max(M slowdown / (g r_stream), (n M - cached) / r_memory) + E t_cast slowdown / g
  //   g = 1 + (min(threads, M / 2^19) - 1) `cpu_thread_gain`, where that is above 1
  //
  // r_stream `cpu_stream_rate` of one thread, r_memory `cpu_memory_rate` of the node. Collectives
  // are streams too: the n ranks share the sum of what all of them read and write,
  //
  //   all-gather, broadcast, all-to-all 2 n V;  reduce-scatter (n + 1) V;  all-reduce 2 n V
  //
  // and 16-bit sums convert every number. AdamW the same with parameters for bytes, and without
  // caches in training: its states are touched once a step (`cached`: they were just touched).
  // Source: as
  // [T19]; runtime/collectives/in_process.cpp, runtime/engine/tensor_ops.cpp.
  Seconds stream(Bytes traffic, Elements converted = {}, DType type = DType::fp32) const;
  Seconds collective(Collective kind, Bytes message, DType dtype, std::int64_t ranks) const;
  Seconds adamw(Elements parameters_of_a_rank, bool cached = false) const;

  // What a tensor of so many bytes adds because its memory comes from the system anew: glibc maps
  // each allocation from 32 MiB on and gives it back when it is freed (malloc/malloc.c,
  // DEFAULT_MMAP_THRESHOLD_MAX), and the system clears its pages one by one. Zero below.
  Seconds first_touch(Bytes tensor) const;

 private:
  struct Work {
    double seconds = 0.0;  // of one thread
    double tasks = 1.0;
    double regions = 1.0;  // parallel loops of the call
  };
  Work product(const KernelCall& call, DType dtype) const;
  Work attention(const KernelCall& call, DType dtype) const;
  Work rowwise(const KernelCall& call, DType dtype) const;
  Work streamed(const KernelCall& call, DType dtype) const;
  double conversions(const KernelCall& call, DType dtype) const;
  // How much faster than one thread they are.
  double together_with(double threads) const {
    return 1.0 + (threads - 1.0) * coefficients_[Coefficient::cpu_thread_gain];
  }
  double operator[](Coefficient id) const { return coefficients_[id]; }

  CpuShare share_;
  Coefficients coefficients_;
};

}  // namespace zeroplan
