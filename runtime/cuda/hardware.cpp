#include "runtime/cuda/hardware.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "base/diagnostic.hpp"
#include "runtime/cuda/activity.hpp"
#include "runtime/cuda/cuda_check.hpp"
#include "runtime/cuda/cuda_device.hpp"
#include "runtime/cuda/graphed_kernels.hpp"
#include "runtime/cuda/kernels/cuda_kernels.hpp"
#include "runtime/cuda/nccl_communicator.hpp"
#include "runtime/cuda/shared_gpu.hpp"

namespace zeroplan::runtime::cuda {
namespace {

constexpr auto kPatience = std::chrono::minutes(10);

// Where a rank's GPU is, told to all; travels as bytes.
struct Seat {
  std::array<char, 32> bus{};
  std::array<char, 96> host{};
};

std::string text_of(const Seat& seat) {
  return fmt::format("{} of {}", seat.bus.data(), seat.host.data());
}

std::vector<Seat> all_seats(Communicator& group, int ordinal) {
  Seat own;
  ZP_CUDA(cudaDeviceGetPCIBusId(own.bus.data(), static_cast<int>(own.bus.size()), ordinal));
  (void)::gethostname(own.host.data(), own.host.size() - 1);
  std::vector<Seat> seats(static_cast<std::size_t>(group.ranks()));
  group.run({.kind = CollectiveKind::all_gather,
             .dtype = DType::uint8,
             .elements = Elements::of(static_cast<std::int64_t>(sizeof own)),
             .input = reinterpret_cast<const std::byte*>(&own),
             .output = reinterpret_cast<std::byte*>(seats.data())});
  return seats;
}

// NCCL wants a GPU for each rank.
void check_seats(const std::vector<Seat>& seats) {
  std::set<std::string> taken;
  for (const Seat& seat : seats) {
    if (taken.insert(text_of(seat)).second) continue;
    throw InputError(Diagnostic{
        .file = "environment",
        .pointer = "CUDA_VISIBLE_DEVICES",
        .expected = "a GPU of its own for every process",
        .got = "GPU " + text_of(seat) + " twice",
        .hint = "start as many processes as there are GPUs; --ranks shares a GPU between threads"});
  }
}

[[noreturn]] void too_few(const std::string& pointer, const Phrase& got) {
  throw InputError(Diagnostic{.file = "command line",
                              .pointer = pointer,
                              .expected = "a GPU for every process of this machine",
                              .got = got,
                              .hint = "start fewer, or --device cpu"});
}

}  // namespace

Gpus find_gpus() {
  Gpus gpus;
  gpus.built = true;
  int count = 0;  // stays untouched without a driver
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    gpus.problem = status == cudaSuccess ? "no GPU"
                                         : fmt::format("no GPU: cudaGetDeviceCount says {} ({})",
                                                       cudaGetErrorName(status),
                                                       cudaGetErrorString(status));
    return gpus;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp about{};
    if (cudaGetDeviceProperties(&about, i) != cudaSuccess) continue;
    gpus.found.push_back({.name = about.name,
                          .memory = Bytes::of(static_cast<std::int64_t>(about.totalGlobalMem)),
                          .major = about.major,
                          .minor = about.minor});
  }
  if (gpus.found.empty()) gpus.problem = "GPUs that do not answer";
  return gpus;
}

std::string built_with() {
  std::string text = fmt::format("CUDA {}.{}", CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100);
  if (built_with_nccl()) text += ", " + nccl_version();
  if (built_with_cupti()) text += ", CUPTI";
  return text;
}

std::string attention_computed_by() { return attention_by(); }

std::function<RankHardware(Communicator&, int, bool)> hardware(const RankPlacement& placement) {
  const int gpus = static_cast<int>(find_gpus().found.size());
  const bool alone = placement.processes || (placement.ranks > 1 && placement.ranks <= gpus);
  const bool nccl = alone && placement.ranks > 1 && built_with_nccl();
  if (placement.processes && placement.ranks > 1 && !built_with_nccl()) {
    throw InputError(Diagnostic{.file = "command line",
                                .pointer = "--device",
                                .expected = "cpu",
                                .got = "cuda between processes, and this program has no NCCL",
                                .hint = "build with NCCL, or --ranks on one GPU"});
  }
  // A launcher may show each process its GPU alone; check_seats() finds who got the same.
  const bool own_gpu_alone = placement.processes && gpus == 1;
  if (placement.processes && !own_gpu_alone && placement.local_rank >= gpus) {
    too_few("--device", fmt::format("{} of them", gpus));
  }
  const bool graphs = graphs_asked();
  const auto shared = nccl ? nullptr : shared_gpu(placement.ranks, kPatience);
  return [=](Communicator& host, int threads, bool traced) {
    int ordinal = 0;
    if (placement.processes && !own_gpu_alone) ordinal = placement.local_rank;
    if (!placement.processes && nccl) ordinal = host.rank();
    RankHardware result;
    auto device = std::make_unique<CudaDevice>(ordinal, threads);
    result.kernels = cuda_kernels(device->stream(Queue::compute));
    // A trace has a span for every call: a graph's kernels belong to none.
    if (graphs && !traced) {
      result.kernels = std::make_unique<GraphedKernels>(*device, std::move(result.kernels));
    }
    if (nccl) {
      check_seats(all_seats(host, ordinal));
      result.group = nccl_communicator(host, *device, kPatience);
    } else {
      result.group = shared_gpu_rank(shared, host, *device);
    }
    if (traced) result.recorder = activity_recorder();
    result.works_beside_host = true;
    result.device = std::move(device);
    return result;
  };
}

}  // namespace zeroplan::runtime::cuda
