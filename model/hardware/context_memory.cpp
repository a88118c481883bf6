#include "model/hardware/context_memory.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace zeroplan {
namespace {

constexpr double kMiB = 1 << 20;

// One process of a current PyTorch with kernels loaded lazily, outside its allocator: in
// out-of-memory messages of public repositories, memory in use by the process minus what PyTorch
// has allocated and reserved. `readings` messages agree within the deviation.
struct MeasuredContext {
  std::string_view gpu;
  double mib;
  double relative_sd;
  int readings;
};
constexpr std::array<MeasuredContext, 13> kMeasuredContexts = {{
    {"v100_sxm2_32gb", 388, 0.03, 4},  // 0.37 to 0.39 GiB
    {"v100_pcie_32gb", 388, 0.05, 4},  // the messages do not tell the form factor
    {"t4", 128, 0.15, 4},              // 0.11 to 0.14 GiB
    {"l4", 256, 0.05, 2},
    {"a40", 348, 0.10, 1},
    {"rtx_4090", 430, 0.10, 4},
    {"a100_sxm_80gb", 522, 0.06, 3},  // two messages; ml-engineering: 481 MiB alone, 563 in DDP
    {"a100_sxm_40gb", 522, 0.06, 3},
    {"h100_sxm", 604, 0.15, 2},  // 0.51 and 0.67 GiB
    {"h200_sxm", 522, 0.10, 1},
    {"b200", 712, 0.10, 1},
    {"rtx_pro_6000", 694, 0.05, 2},
    {"rtx_5090", 563, 0.10, 2},
}};

// Most of a context is reserved for each streaming multiprocessor: the cards above take 3.2 to 4.8
// MiB for one. A card without a reading takes the mean of its compute capability, else of all.
constexpr double kContextMibPerSm = 4.1;
constexpr double kContextPerSmSpread = 0.2;
constexpr double kSameCapabilitySpread = 0.12;

struct PerSm {
  double mib;
  double relative_sd;
};

PerSm context_per_sm(ComputeCapability capability) {
  double sum = 0.0;
  int count = 0;
  for (const MeasuredContext& measured : kMeasuredContexts) {
    const Gpu gpu = gpu_of_key(measured.gpu);
    if (gpu.compute_capability != capability) continue;
    sum += measured.mib / static_cast<double>(gpu.sm_count.value);
    ++count;
  }
  if (count == 0) return {kContextMibPerSm, kContextPerSmSpread};
  return {sum / count, kSameCapabilitySpread};
}

// How much larger the context is where all kernels are loaded at once, as before CUDA 11.7.
// Source: stas00/ml-engineering training/performance (A100: torch 1.13 922 MiB, 1.10 1823 MiB,
// against 522 here); bigscience's V100 (2021): 1113 against 388 MiB.
double eager_loading_factor(Version torch) {
  constexpr Version kLazy{2, 0};
  constexpr Version kSplitLibraries{1, 13};
  if (torch >= kLazy) return 1.0;
  return torch >= kSplitLibraries ? 1.77 : 3.2;
}
constexpr double kEagerLoadingSpread = 0.12;

Quantity<Bytes> quantity(double bytes, double sd, Confidence confidence, std::string source) {
  Quantity<Bytes> result;
  result.value = Bytes::nearest(bytes);
  result.relative_sd = sd;
  result.confidence = confidence;
  result.source = std::move(source);
  return result;
}

// Independent terms: their absolute deviations add in squares.
class Sum {
 public:
  void add(double bytes, double relative_sd) {
    total_ += bytes;
    variance_ += bytes * relative_sd * bytes * relative_sd;
  }
  double total() const { return total_; }
  double relative_sd() const { return total_ > 0.0 ? std::sqrt(variance_) / total_ : 0.0; }

 private:
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

// First communicator within a node. Source: NVIDIA/nccl issue 964 (A100, 4 GPUs with NVLink, after
// a 4 MB all-reduce: 544 MiB with two ranks, 688 with more); without NVLink NVIDIA/nccl pull 2366
// (RTX 3090: context and NCCL 484 MiB, context alone 256).
double ring_bytes(const Gpu& gpu, bool nvlink, std::int64_t ranks) {
  if (!nvlink) return 228 * kMiB;
  return (ranks == 2 ? 544 : 688) * kMiB * share_of_channels(gpu);
}

}  // namespace

// Bytes of a process outside PyTorch's allocator before any collective:
//   C = c(card) * e(torch),   c = measured, else s * number of SMs
// s MiB for one SM: mean of the cards of that compute capability with a reading, else 4.1.
// Left out: kernels a process loads beyond the usual ones (custom CUDA extensions).
// Checked by tests/unit/context_memory_test.cpp.
Quantity<Bytes> cuda_context(const Gpu& gpu, Version torch) {
  if (gpu.is_cpu()) return quantity(0.0, 0.0, Confidence::derived, "no GPU");
  const double factor = eager_loading_factor(torch);
  const double factor_sd = factor == 1.0 ? 0.0 : kEagerLoadingSpread;
  for (const MeasuredContext& measured : kMeasuredContexts) {
    if (measured.gpu != gpu.key) continue;
    return quantity(measured.mib * kMiB * factor,
                    std::hypot(measured.relative_sd, factor_sd),
                    factor == 1.0 ? Confidence::measured : Confidence::derived,
                    "memory in use outside PyTorch in out-of-memory messages, " +
                        std::to_string(measured.readings) + " readings");
  }
  const PerSm per_sm = context_per_sm(gpu.compute_capability);
  return quantity(per_sm.mib * kMiB * static_cast<double>(gpu.sm_count.value) * factor,
                  std::hypot(per_sm.relative_sd, factor_sd),
                  Confidence::derived,
                  "as cards with readings take for each SM");
}

// Bytes of NCCL:   ring + (communicators - 1) * further + light * network + peers * all-to-all
//   further: on A100 600 MiB with NVLink, as the first without. NVIDIA/nccl issue 964: 544 to 688
//            for each group; issue 864: 1.6 GB with one communicator, 6 GB with three or more;
//   light:   the group that spans nodes, and light communicators;
//   network: 200 MiB (assumed; with it Megatron's groups come near what 64 V100 show beyond
//            PyTorch's reserved memory, bigscience experiments/gpt2-meg-ds-3d: 3.3 GiB with the
//            context of then);
//   all-to-all: (4.34 - 1.06) GB over 7 peers, NVIDIA/nccl issue 1685 (8 H100).
// Left out: buffers registered by the user, NVLS, NCCL_BUFFSIZE and channel settings.
Quantity<Bytes> nccl_overhead(const Gpu& gpu, Topology topology, const CommunicatorUse& use) {
  if (gpu.is_cpu() || use.ranks <= 1 || use.communicators <= 0) {
    return quantity(0.0, 0.0, Confidence::derived, "no collective between GPUs");
  }
  const bool nvlink = joined_by_nvlink(topology);
  Sum sum;
  if (use.ranks > use.nodes) sum.add(ring_bytes(gpu, nvlink, use.ranks), nvlink ? 0.15 : 0.3);
  const std::int64_t light = use.light_communicators + (use.nodes > 1 ? 1 : 0);
  sum.add(static_cast<double>(light) * 200 * kMiB, 0.8);
  const double further =
      nvlink ? 600 * kMiB * share_of_channels(gpu) : ring_bytes(gpu, false, use.ranks);
  sum.add(static_cast<double>(use.communicators - 1) * further, 0.5);
  if (use.all_to_all_ranks > 1) {
    constexpr double kBytesPerPeer = (4.34e9 - 1.06e9) / 7;
    constexpr std::int64_t kPeersOfANode = 8;
    const auto peers = static_cast<double>(std::min(use.all_to_all_ranks, kPeersOfANode) - 1);
    sum.add(kBytesPerPeer * peers, 0.4);
  }
  return quantity(
      sum.total(),
      sum.relative_sd(),
      Confidence::derived,
      "NVIDIA/nccl issues 864, 964 and 1685, pull 2366; totals of bigscience's V100 runs");
}

Bytes usable_memory(const Gpu& gpu, const Quantity<Bytes>& context, const Quantity<Bytes>& nccl) {
  const Bytes left = gpu.memory.value - context.value - nccl.value;
  return std::max(left, Bytes::zero());
}

}  // namespace zeroplan
