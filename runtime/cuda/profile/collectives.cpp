// NCCL between the visible GPUs, a thread each: blocking communicators and one stream, as
// nccl-tests has it and the model's curves were measured. The runtime's own communicator does not
// block and goes over a stream of its own; its cost is seen in training.
//
// A blocking communicator waits for a rank that never comes for ever, and nothing ends it. So the
// ranks meet on one that does not block first, and give it up when one fails or time is up; the
// other is made when all have been there, by a thread of its own, which is left behind when a rank
// fails meanwhile or time is up. Not the first for both: NCCL starts a thread for every call of a
// communicator that does not block (src/group.cc, ncclGroupEndInternal).
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nccl.h>

#include "model/cost/collective.hpp"
#include "runtime/collectives/in_process.hpp"
#include "runtime/cuda/cuda_check.hpp"
#include "runtime/cuda/profile/bench.hpp"

namespace zeroplan::runtime::cuda {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t kSmallestMessage = 1 << 12;
constexpr Collective kKinds[] = {Collective::all_gather,
                                 Collective::reduce_scatter,
                                 Collective::all_reduce,
                                 Collective::broadcast,
                                 Collective::all_to_all};

void check_nccl(ncclResult_t status, const char* call) {
  if (status == ncclSuccess) return;
  throw CollectiveError(fmt::format("{}: {}", call, ncclGetErrorString(status)));
}

struct Reading {
  Collective kind = Collective::all_gather;
  std::int64_t bytes = 0;
  std::vector<double> seconds;  // of a call
};

// A blocking communicator on its way. Held by the rank and by the thread that makes it.
struct Beginning {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false, left = false;
  ncclResult_t status = ncclSuccess;
  ncclComm_t made = nullptr;
};

void make_blocking(
    const std::shared_ptr<Beginning>& to, int device, int ranks, int rank, const ncclUniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  ncclComm_t made = nullptr;
  ncclResult_t status = ncclUnhandledCudaError;
  if (cudaSetDevice(device) == cudaSuccess) {
    status = ncclCommInitRankConfig(&made, ranks, id, rank, &config);
  }
  const std::lock_guard lock(to->mutex);
  to->status = status;
  to->made = made;
  to->done = true;
  if (to->left && status == ncclSuccess) static_cast<void>(ncclCommAbort(made));
  to->changed.notify_all();
}

struct Group {
  ncclUniqueId meeting{}, id{};
  std::chrono::milliseconds patience{};
  int ranks = 2;
  std::int64_t largest = 0;  // bytes of a message
  std::int64_t calls = 1;    // in a row
  std::int64_t discard = 1, kept = 3;
};

// A rank on the GPU of its number. `host` is its place among the threads.
class Rank {
 public:
  Rank(const Group& group, Communicator& host)
      : group_(group), host_(host), input_(group.largest), output_(group.largest) {
    ZP_CUDA(cudaMemsetAsync(input_.data(), 0, static_cast<std::size_t>(group.largest), stream_));
    ZP_CUDA(cudaStreamSynchronize(stream_));
    host_.barrier();  // who has no memory is noticed before the others wait in NCCL
    const std::int64_t before = free_memory();
    meet();
    nccl_ = blocking();
    free_before_ = before;
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  // Destroying waits for the others, who may have failed: then it is aborted.
  ~Rank() {
    if (nccl_ == nullptr) return;
    static_cast<void>(finished_ ? ncclCommDestroy(nccl_) : ncclCommAbort(nccl_));
  }
  // All ranks are done with their communicators.
  void finish() { finished_ = true; }

  std::vector<Reading> measure() {
    std::vector<Reading> readings;
    for (const Collective kind : kKinds) {
      for (std::int64_t bytes = kSmallestMessage; bytes <= group_.largest; bytes *= 8) {
        Reading reading{.kind = kind, .bytes = bytes, .seconds = {}};
        for (std::int64_t i = 0; i < group_.discard + group_.kept; ++i) {
          const double seconds = time(kind, bytes);
          if (i >= group_.discard) reading.seconds.push_back(std::max(1e-9, seconds));
        }
        readings.push_back(std::move(reading));
      }
    }
    return readings;
  }
  // Of this rank's GPU, by all kinds together.
  std::int64_t communicator_bytes() const { return free_before_ - free_memory(); }

 private:
  static std::int64_t free_memory() {
    std::size_t free = 0;
    std::size_t total = 0;
    ZP_CUDA(cudaMemGetInfo(&free, &total));
    return static_cast<std::int64_t>(free);
  }

  void meet() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t meeting = nullptr;
    try {
      const ncclResult_t begun =
          ncclCommInitRankConfig(&meeting, group_.ranks, group_.meeting, host_.rank(), &config);
      if (begun != ncclInProgress) check_nccl(begun, "ncclCommInitRankConfig");
      settle(meeting);
      host_.barrier();  // nobody gives it up while others are on their way
    } catch (...) {
      if (meeting != nullptr) static_cast<void>(ncclCommAbort(meeting));
      throw;
    }
    static_cast<void>(ncclCommAbort(meeting));
  }
  ncclComm_t blocking() const {
    const auto begun = std::make_shared<Beginning>();
    int device = 0;
    ZP_CUDA(cudaGetDevice(&device));
    std::thread(make_blocking, begun, device, group_.ranks, host_.rank(), group_.id).detach();
    const Clock::time_point begin = Clock::now();
    std::unique_lock lock(begun->mutex);
    constexpr auto kLook = std::chrono::milliseconds(20);  // for failures, which notify nobody here
    while (!begun->changed.wait_for(lock, kLook, [&] { return begun->done; })) {
      const auto failure = host_.failure();
      if (!failure && Clock::now() - begin < group_.patience) continue;
      begun->left = true;
      if (failure) throw CollectiveError(*failure);
      too_late();
    }
    check_nccl(begun->status, "ncclCommInitRankConfig");
    return begun->made;
  }
  [[noreturn]] void too_late() const {
    throw CollectiveError(fmt::format("a rank has not come to NCCL within {} s", patience()));
  }
  void settle(ncclComm_t meeting) const {
    const Clock::time_point begin = Clock::now();
    for (;;) {
      ncclResult_t state = ncclSuccess;
      check_nccl(ncclCommGetAsyncError(meeting, &state), "ncclCommGetAsyncError");
      if (state == ncclSuccess) return;
      if (const auto failure = host_.failure()) throw CollectiveError(*failure);
      if (state != ncclInProgress) check_nccl(state, "ncclCommInitRankConfig");
      if (Clock::now() - begin > group_.patience) too_late();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  double patience() const { return std::chrono::duration<double>(group_.patience).count(); }

  double time(Collective kind, std::int64_t bytes) {
    host_.barrier();
    begin_.record(stream_);
    for (std::int64_t i = 0; i < group_.calls; ++i) order(kind, bytes);
    end_.record(stream_);
    wait();
    return end_.seconds_since(begin_) / static_cast<double>(group_.calls);
  }

  // A rank that failed leaves the others' kernels waiting on their GPUs.
  void wait() {
    const Clock::time_point begin = Clock::now();
    for (;;) {
      const cudaError_t status = cudaEventQuery(end_.event());
      if (status == cudaSuccess) return;
      if (status != cudaErrorNotReady) check(status, "cudaEventQuery");
      static_cast<void>(cudaGetLastError());
      const auto failure = host_.failure();
      if (!failure && Clock::now() - begin < group_.patience) continue;
      static_cast<void>(ncclCommAbort(std::exchange(nccl_, nullptr)));
      throw CollectiveError(
          failure.value_or(fmt::format("a collective of NCCL is not done after {} s", patience())));
    }
  }

  // `bytes`: the whole tensor, as nccl-tests and [T12] count it.
  void order(Collective kind, std::int64_t bytes) {
    const auto all = static_cast<std::size_t>(bytes) / sizeof(float);
    const std::size_t share = all / static_cast<std::size_t>(group_.ranks);
    switch (kind) {
      case Collective::all_gather:
        return check_nccl(
            ncclAllGather(input_.data(), output_.data(), share, ncclFloat, nccl_, stream_),
            "ncclAllGather");
      case Collective::reduce_scatter:
        return check_nccl(
            ncclReduceScatter(
                input_.data(), output_.data(), share, ncclFloat, ncclSum, nccl_, stream_),
            "ncclReduceScatter");
      case Collective::all_reduce:
        return check_nccl(
            ncclAllReduce(input_.data(), output_.data(), all, ncclFloat, ncclSum, nccl_, stream_),
            "ncclAllReduce");
      case Collective::broadcast:
        return check_nccl(
            ncclBroadcast(input_.data(), output_.data(), all, ncclFloat, 0, nccl_, stream_),
            "ncclBroadcast");
      case Collective::all_to_all:
        check_nccl(ncclGroupStart(), "ncclGroupStart");
        for (int peer = 0; peer < group_.ranks; ++peer) {
          const std::size_t at = share * static_cast<std::size_t>(peer) * sizeof(float);
          check_nccl(ncclSend(input_.data() + at, share, ncclFloat, peer, nccl_, stream_),
                     "ncclSend");
          check_nccl(ncclRecv(output_.data() + at, share, ncclFloat, peer, nccl_, stream_),
                     "ncclRecv");
        }
        return check_nccl(ncclGroupEnd(), "ncclGroupEnd");
    }
  }

  const Group& group_;
  Communicator& host_;
  OwnStream stream_;
  DeviceMemory input_, output_;
  Mark begin_, end_;
  ncclComm_t nccl_ = nullptr;
  bool finished_ = false;
  std::int64_t free_before_ = 0;
};

void measure_group(Bench& bench, const Group& group) {
  auto hosts = in_process_ranks(group.ranks, group.patience);
  std::vector<Reading> readings;
  std::int64_t memory = 0;
  run_in_process(hosts, [&](int number) {
    Communicator& host = *hosts[static_cast<std::size_t>(number)];
    std::optional<Rank> rank;  // goes after the others know of a failure
    try {
      ZP_CUDA(cudaSetDevice(number));
      rank.emplace(group, host);
      std::vector<Reading> found = rank->measure();
      if (number == 0) {
        readings = std::move(found);
        memory = rank->communicator_bytes();
      }
      host.barrier();  // nobody takes its communicator down while others work
      rank->finish();
    } catch (const std::exception& problem) {
      host.fail(failure_text([&] { return fmt::format("GPU {}: {}", number, problem.what()); }));
    }
  });
  if (const auto failure = hosts.front()->failure()) throw CollectiveError(*failure);

  for (Reading& reading : readings) {
    bench.findings.rows.push_back(bench.row(
        "gpu_nccl_" + std::string(name(kCollectiveNames, reading.kind)),
        {{"ranks", Json(group.ranks)}, {"bytes", Json(reading.bytes)}, {"dtype", Json("fp32")}},
        "s",
        std::move(reading.seconds),
        group.discard));
  }
  bench.findings.rows.push_back(bench.row("gpu_nccl_communicator",
                                          {{"ranks", Json(group.ranks)}},
                                          "bytes",
                                          {static_cast<double>(memory)},
                                          0));
}

}  // namespace

void measure_nccl(Bench& bench, int gpus) {
  if (gpus < 2) {
    bench.findings.notes.emplace_back("no collectives between GPUs: one is visible");
    return;
  }
  Group group;
  group.largest = std::min(bench.scale().largest_message, bench.room() / 4);
  group.calls = bench.scale().collectives;
  group.discard = bench.scale().isolated.discard;
  group.kept = bench.scale().isolated.least;
  group.patience =
      std::chrono::milliseconds(static_cast<std::int64_t>(bench.scale().patience.seconds() * 1e3));
  std::set<int> sizes = {2, gpus};
  if (gpus > 4) sizes.insert(4);
  for (const int ranks : sizes) {
    group.ranks = ranks;
    check_nccl(ncclGetUniqueId(&group.meeting), "ncclGetUniqueId");
    check_nccl(ncclGetUniqueId(&group.id), "ncclGetUniqueId");
    measure_group(bench, group);
  }
}

}  // namespace zeroplan::runtime::cuda
