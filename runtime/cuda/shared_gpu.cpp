// A collective has two meetings on the host, both short: everybody's buffers are known, everybody's
// work is ordered. Between them each rank orders its part on its own stream, behind everybody's
// events: one stretch of a sum for all ranks, or what it gets itself.
#include "runtime/cuda/shared_gpu.hpp"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/cuda/cuda_check.hpp"
#include "runtime/cuda/kernels/cuda_kernels.hpp"

namespace zeroplan::runtime::cuda {

namespace {

bool same_call(const Exchange& a, const Exchange& b) {
  return a.kind == b.kind && a.operation == b.operation && a.dtype == b.dtype &&
         a.elements == b.elements && a.root == b.root;
}

}  // namespace

class SharedGpu {
 public:
  struct Part {
    Exchange exchange;
    Fence ready;  // the rank's buffers may be used
    Fence done;   // the rank has done its part for all
  };

  struct Meeting {
    std::vector<Part> parts;
    int came = 0;
    int ordered = 0;
    int left = 0;
  };

  SharedGpu(int ranks, std::chrono::milliseconds patience) : ranks_(ranks), patience_(patience) {}

  // Everybody's buffers, when all have come.
  std::shared_ptr<Meeting> meet(std::int64_t number,
                                const Exchange& exchange,
                                Fence ready,
                                const Communicator& host) {
    std::unique_lock lock(mutex_);
    std::shared_ptr<Meeting>& found = meetings_[number];
    if (!found) {
      found = std::make_shared<Meeting>();
      found->parts.resize(static_cast<std::size_t>(ranks_));
    }
    const std::shared_ptr<Meeting> meeting = found;
    for (const Part& other : meeting->parts) {
      if (!other.ready || same_call(other.exchange, exchange)) continue;
      throw CollectiveError(fmt::format("collective {} on the GPU: rank {} calls {}, another {}",
                                        number,
                                        host.rank(),
                                        name_of(exchange.kind),
                                        name_of(other.exchange.kind)));
    }
    Part& own = meeting->parts[static_cast<std::size_t>(host.rank())];
    own.exchange = exchange;
    own.ready = std::move(ready);
    ++meeting->came;
    changed_.notify_all();
    until(lock, host, number, [&] { return meeting->came == ranks_; });
    return meeting;
  }

  // Everybody's work is ordered; what it was ordered behind may go.
  std::vector<Fence> part(std::int64_t number,
                          Meeting& meeting,
                          Fence done,
                          const Communicator& host) {
    std::unique_lock lock(mutex_);
    meeting.parts[static_cast<std::size_t>(host.rank())].done = std::move(done);
    ++meeting.ordered;
    changed_.notify_all();
    until(lock, host, number, [&] { return meeting.ordered == ranks_; });
    std::vector<Fence> fences;
    for (const Part& each : meeting.parts) fences.push_back(each.done);
    if (++meeting.left == ranks_) meetings_.erase(number);
    return fences;
  }

  // The one of a part of the ranks, which another member has called for or nobody yet.
  std::shared_ptr<SharedGpu> split(std::int64_t number, std::span<const int> members) {
    const std::lock_guard lock(mutex_);
    const auto called = std::pair(number, std::vector<int>(members.begin(), members.end()));
    std::shared_ptr<SharedGpu>& found = parts_[called];
    if (!found) found = std::make_shared<SharedGpu>(static_cast<int>(members.size()), patience_);
    return found;
  }

 private:
  template <typename Reached>
  void until(std::unique_lock<std::mutex>& lock,
             const Communicator& host,
             std::int64_t number,
             Reached&& reached) {
    constexpr auto kLook = std::chrono::milliseconds(50);  // for failures, which notify nobody here
    const auto deadline = std::chrono::steady_clock::now() + patience_;
    while (!reached()) {
      if (const auto reason = host.failure()) throw CollectiveError(*reason);
      if (std::chrono::steady_clock::now() > deadline) {
        throw CollectiveError(fmt::format("rank {} has waited {} s in collective {} on the GPU",
                                          host.rank(),
                                          std::chrono::duration<double>(patience_).count(),
                                          number));
      }
      changed_.wait_for(lock, kLook);
    }
  }

  const int ranks_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, std::shared_ptr<Meeting>> meetings_;
  std::map<std::pair<std::int64_t, std::vector<int>>, std::shared_ptr<SharedGpu>> parts_;
};

std::shared_ptr<SharedGpu> shared_gpu(int ranks, std::chrono::milliseconds patience) {
  return std::make_shared<SharedGpu>(ranks, patience);
}

namespace {

class SharedGpuRank : public Communicator {
 public:
  SharedGpuRank(std::shared_ptr<SharedGpu> shared, Communicator& host, CudaDevice& device)
      : shared_(std::move(shared)), host_(host), device_(device) {}

  int rank() const override { return host_.rank(); }
  int ranks() const override { return host_.ranks(); }
  void fail(std::string_view reason) noexcept override { host_.fail(reason); }
  std::optional<std::string> failure() const override { return host_.failure(); }

  std::unique_ptr<Communicator> split(std::span<const int> members) override {
    auto host = host_.split(members);  // who disagrees about the members is told
    auto part =
        std::make_unique<SharedGpuRank>(shared_->split(next_part_++, members), *host, device_);
    part->own_host_ = std::move(host);
    return part;
  }

  Pending start(const Exchange& exchange) override {
    if (!device_.holds(exchange.input) && !device_.holds(exchange.output)) {
      return host_.start(exchange);
    }
    const std::int64_t number = next_++;
    device_.touch(exchange.input);
    device_.touch(exchange.output);
    const auto meeting = shared_->meet(number, exchange, device_.record(device_.in_use()), host_);
    cudaStream_t stream = device_.collectives_stream();
    for (const SharedGpu::Part& part : meeting->parts) {
      ZP_CUDA(cudaStreamWaitEvent(stream, event_of(part.ready), 0));
    }
    order(*meeting);
    const std::vector<Fence> done =
        shared_->part(number, *meeting, device_.record_on(stream), host_);
    return Pending([this, done] {
      for (const Fence& fence : done) device_.wait(device_.in_use(), fence);
    });
  }

 private:
  void copy(std::byte* to, const std::byte* from, Bytes bytes) {
    if (to == from || bytes == Bytes::zero()) return;
    ZP_CUDA(cudaMemcpyAsync(to,
                            from,
                            static_cast<std::size_t>(bytes.count()),
                            cudaMemcpyDeviceToDevice,
                            device_.collectives_stream()));
  }
  // Elements [first, first + count) of all inputs, to the output of `to`.
  void sum(const SharedGpu::Meeting& meeting, Elements first, Elements count, std::byte* to) {
    if (count <= Elements::zero()) return;
    const Exchange& call = meeting.parts.front().exchange;
    std::vector<const std::byte*> inputs;
    for (const SharedGpu::Part& part : meeting.parts) {
      inputs.push_back(part.exchange.input + (first * call.dtype).count());
    }
    sum_of_ranks(device_.collectives_stream(),
                 inputs.data(),
                 ranks(),
                 to,
                 call.dtype,
                 count,
                 call.operation);
  }
  void order(const SharedGpu::Meeting& meeting);

  std::shared_ptr<SharedGpu> shared_;
  std::unique_ptr<Communicator> own_host_;  // of a part
  Communicator& host_;
  CudaDevice& device_;
  std::int64_t next_ = 0;
  std::int64_t next_part_ = 0;
};

// In place is no danger: an element that this rank writes is read by this rank alone, which orders
// the reading first.
void SharedGpuRank::order(const SharedGpu::Meeting& meeting) {
  const Exchange& own = meeting.parts[static_cast<std::size_t>(rank())].exchange;
  const auto of = [&](int r) -> const Exchange& {
    return meeting.parts[static_cast<std::size_t>(r)].exchange;
  };
  const Bytes share = own.elements * own.dtype;
  // Alone: the sum of one is itself, and in place, as gradients are reduced, it is there already.
  if (ranks() == 1) {
    if (own.kind != CollectiveKind::barrier) copy(own.output, own.input, share);
    return;
  }
  switch (own.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce: {
      const std::int64_t stretch = ceil_div(own.elements.count(), ranks());
      const Elements first = Elements::of(std::min(own.elements.count(), rank() * stretch));
      const Elements count = std::min(Elements::of(stretch), own.elements - first);
      const std::int64_t at = (first * own.dtype).count();
      const bool all = own.kind == CollectiveKind::all_reduce;
      std::byte* to = of(all ? rank() : own.root).output + at;
      sum(meeting, first, count, to);
      for (int r = 0; all && r < ranks(); ++r) copy(of(r).output + at, to, count * own.dtype);
      break;
    }
    case CollectiveKind::reduce_scatter:
      sum(meeting, own.elements * rank(), own.elements, own.output);
      break;
    case CollectiveKind::all_gather:
      for (int r = 0; r < ranks(); ++r) {
        copy(own.output + share.count() * r, of(r).input, share);
      }
      break;
    case CollectiveKind::broadcast:
      copy(own.output, of(own.root).input, share);
      break;
    case CollectiveKind::all_to_all:
      for (int r = 0; r < ranks(); ++r) {
        copy(own.output + share.count() * r, of(r).input + share.count() * rank(), share);
      }
      break;
    case CollectiveKind::barrier:
      break;
  }
}

}  // namespace

std::unique_ptr<Communicator> shared_gpu_rank(std::shared_ptr<SharedGpu> shared,
                                              Communicator& host,
                                              CudaDevice& device) {
  return std::make_unique<SharedGpuRank>(std::move(shared), host, device);
}

}  // namespace zeroplan::runtime::cuda
