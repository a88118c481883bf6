// Time of any operation of a graph on the GPU, host work aside: matrix products by shape, fused
// attention by kernel, and everything else by the memory's rate with a floor for every kernel.
//
// Units: Seconds, Bytes. A KernelTimes belongs to one GPU and one software; blocks repeat, so
// callers keep what it answered for a block.
#pragma once

#include <array>
#include <optional>

#include "model/cost/attention.hpp"
#include "model/cost/collective.hpp"
#include "model/cost/cpu_rank.hpp"
#include "model/cost/gemm.hpp"
#include "model/cost/parallel_layout.hpp"
#include "model/newton_schulz.hpp"

namespace zeroplan {

// What a kernel is slowed down by when a collective runs beside it (contention.hpp).
enum class KernelBound { compute, memory, none };

struct KernelTime {
  Seconds seconds;
  KernelBound bound = KernelBound::none;
};

// What operations that leave the GPU go through.
struct Transfers {
  const Cluster* cluster = nullptr;  // must outlive its user; null: nothing leaves the GPU
  ParallelLayout layout;             // who exchanges, reduces and hands on with whom
  // The embedded runtime on the cluster's CPU ranks: its model's type. Operations are then its
  // calls ([T19]), and no kernels of a GPU.
  std::optional<DType> cpu_calls = std::nullopt;
};

class KernelTimes {
 public:
  KernelTimes(const Gpu& gpu,
              const Coefficients& coefficients,
              const AttentionSoftware& software,
              bool allow_tf32 = false,
              const Transfers& transfers = {});

  // [T9] A memory-bound operation:  t = n t_floor + M / (B e_kind r)
  //
  // M bytes its n kernels read and write, B memory bandwidth, e_kind the achieved share by kind of
  // operation (`*_bandwidth_efficiency`), r = 1, or `l2_bandwidth_ratio` where the bytes of one
  // kernel are less than `l2_resident_share` of L2: its operands were just written. Products and
  // attention: [T6], [T8]. Source: vidur's and LLMServingSim's kernel profiles. Left out: strides,
  // index patterns. Checked by tests/unit/model/cost/kernel_time_test.cpp.
  // All of Operation::times.
  KernelTime of(const Block& block, const Operation& operation) const;

  bool on_cpu() const { return cpu_.has_value(); }

  // M bytes through n kernels of one kind.
  Seconds streaming(OpKind kind, Bytes traffic, std::int64_t kernels = 1) const;

  // [T22] One update by Muon ([M4]): its products at [T6]'s rate, what lies between them at [T9]'s.
  // Left out: how much faster inductor's fused kernels are than torch's of the same bytes.
  Seconds muon_update(const MuonMatrices& matrices, NewtonSchulz method, DType gradient) const;

  // All operations of one pass over a block, one after the other.
  Seconds pass(const Block& block, Pass pass) const;

  const MatmulTimes& matmul() const { return matmul_; }

 private:
  KernelTime once(const Block& block, const Operation& operation) const;
  Seconds exchange(Bytes bytes) const;
  Seconds among_tensor_ranks(Collective kind, Bytes bytes) const;
  Seconds stage_transfer(Bytes bytes) const;
  Seconds host_copy(Bytes bytes) const;

  Gpu gpu_;
  Coefficients coefficients_;
  AttentionSoftware software_;
  MatmulTimes matmul_;
  std::array<double, kOpKindNames.size()> seconds_per_byte_{};
  double floor_;
  double resident_bytes_;
  double resident_ratio_;
  Transfers transfers_;
  std::optional<CpuRankTimes> cpu_;
};

}  // namespace zeroplan
