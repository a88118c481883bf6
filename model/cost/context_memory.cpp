#include "model/cost/context_memory.hpp"

#include <algorithm>
#include <cmath>

#include "model/releases.hpp"

namespace zeroplan {
namespace {

using C = Coefficient;

// Independent terms: their absolute deviations add in squares.
class Sum {
 public:
  explicit Sum(const Coefficients& coefficients) : coefficients_(coefficients) {}

  void add(double times, C id) {
    const double bytes = times * coefficients_[id];
    total_ += bytes;
    variance_ += std::pow(bytes * coefficients_.relative_sd(id), 2.0);
  }
  UncertainBytes result() const {
    return {Bytes::nearest(total_), total_ > 0.0 ? std::sqrt(variance_) / total_ : 0.0};
  }

 private:
  const Coefficients& coefficients_;
  double total_ = 0.0;
  double variance_ = 0.0;
};

bool joined_by_nvlink(Topology topology) {
  return topology == Topology::nvswitch || topology == Topology::nvlink_mesh ||
         topology == Topology::hybrid_cube_mesh;
}

// NCCL opens two channels for each NVLink, up to those of A100 (24 of 9.2 MiB a connection;
// NVIDIA/nccl src/graph/search.cc, src/include/device.h): fewer links, fewer buffers.
double share_of_channels(const Gpu& gpu) {
  constexpr double kA100 = 300e9;  // bytes a second, each way
  if (!gpu.nvlink) return 1.0;
  return std::min(1.0, gpu.nvlink->value.value() / kA100);
}

}  // namespace

// Bytes of a process outside PyTorch's allocator before any collective:
//   C = s * number of SMs * e(torch)
//   s: cuda_context_bytes_per_sm; most of a context is reserved for each streaming multiprocessor;
//   e: 1 where kernels are loaded lazily, and before that cuda_context_split_ratio (PyTorch 1.13)
//      and cuda_context_eager_ratio.
// Left out: kernels a process loads beyond the usual ones (custom CUDA extensions).
// Checked by tests/unit/model/cost/context_memory_test.cpp.
UncertainBytes cuda_context(const Gpu& gpu, Version torch, const Coefficients& coefficients) {
  if (gpu.is_cpu()) return {};
  double bytes =
      coefficients[C::cuda_context_bytes_per_sm] * static_cast<double>(gpu.sm_count.value);
  double sd = coefficients.relative_sd(C::cuda_context_bytes_per_sm);
  if (!acts(ReleaseRule::loads_kernels_lazily, torch)) {
    const C ratio = acts(ReleaseRule::creates_context_in_parts, torch)
                        ? C::cuda_context_split_ratio
                        : C::cuda_context_eager_ratio;
    bytes *= coefficients[ratio];
    sd = std::hypot(sd, coefficients.relative_sd(ratio));
  }
  return {Bytes::nearest(bytes), sd};
}

// Bytes of NCCL:   ring + (communicators - 1) * further + light * network + peers * all-to-all
// ring: first communicator within a node. NVLink's buffers grow with its channels; without NVLink a
// further communicator is as large as the first. The group that spans nodes is a light one.
// Left out: buffers registered by the user, NVLS, NCCL_BUFFSIZE and channel settings.
UncertainBytes nccl_overhead(const Gpu& gpu,
                             Topology topology,
                             const CommunicatorUse& use,
                             const Coefficients& coefficients) {
  if (gpu.is_cpu() || use.ranks <= 1 || use.communicators <= 0) return {};
  const bool nvlink = joined_by_nvlink(topology);
  const double inside = use.ranks > use.nodes ? 1.0 : 0.0;
  const auto further = static_cast<double>(use.communicators - 1);
  Sum sum(coefficients);
  if (nvlink) {
    const double channels = share_of_channels(gpu);
    sum.add(inside * channels, use.ranks == 2 ? C::nccl_pair_bytes : C::nccl_ring_bytes);
    sum.add(further * channels, C::nccl_further_bytes);
  } else {
    sum.add(inside + further, C::nccl_pcie_ring_bytes);
  }
  const std::int64_t light = use.light_communicators + (use.nodes > 1 ? 1 : 0);
  sum.add(static_cast<double>(light), C::nccl_light_bytes);
  if (use.all_to_all_ranks > 1) {
    constexpr std::int64_t kPeersOfANode = 8;
    const std::int64_t peers = std::min(use.all_to_all_ranks, kPeersOfANode) - 1;
    sum.add(static_cast<double>(peers), C::nccl_peer_bytes);
  }
  return sum.result();
}

}  // namespace zeroplan
