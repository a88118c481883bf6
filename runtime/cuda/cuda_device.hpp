// A rank's GPU: memory from an Arena over cudaMalloc, streams for the queues and for collectives,
// kernels of runtime/cuda/kernels on them. For sources of runtime/cuda alone.
//
// An operand on the host is reached by kernels where it is pinned (one address space: the same
// pointer), else through a copy. Work on host memory alone is the base's, after the streams are
// done with host memory.
#pragma once

#include <array>
#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <cuda_runtime_api.h>

#include "runtime/device/arena.hpp"
#include "runtime/device/host_device.hpp"

namespace zeroplan::runtime::cuda {

// Events come back to be used again.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  EventPool() = default;
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool();
  // An event recorded on the stream; other threads may wait for it.
  Fence record(cudaStream_t stream);

 private:
  std::mutex mutex_;  // the last to let go of a fence may be another rank
  std::vector<cudaEvent_t> free_;
};

inline cudaEvent_t event_of(const Fence& fence) { return static_cast<cudaEvent_t>(fence.get()); }

// Kernel calls that somebody has taken and not yet put on the compute queue.
class HeldCalls {
 public:
  virtual ~HeldCalls() = default;
  // Puts them there.
  virtual void order() = 0;
  virtual GraphUse use() const = 0;
};

class CudaDevice : public HostDevice, private Arena::Backend {
 public:
  // Makes that GPU this thread's, for good. threads: of what happens on the host.
  CudaDevice(int ordinal, int threads);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override;

  cudaStream_t stream(Queue queue) const { return streams_[static_cast<std::size_t>(queue)]; }
  cudaStream_t collectives_stream() const { return streams_[kQueueCount]; }
  // For collectives: the memory is used on the queue in use too, whose order it follows.
  bool holds(const std::byte* data) const { return arena_.holds(data); }
  void touch(const std::byte* data) { arena_.touch(data, in_use()); }
  Fence record_on(cudaStream_t stream) { return events_->record(stream); }

  // Asked to order before anything else is ordered that may stand behind those calls. Allocations
  // repeat their addresses from then on. Null: there are none any more.
  void hold(HeldCalls* calls) {
    held_ = calls;
    if (calls != nullptr) arena_.repeat_addresses();
  }

  // Called again and again while the host waits for the GPU, with how long it has waited; throws
  // where nothing will come.
  void watch(std::function<void(std::chrono::steady_clock::duration)> watch) {
    watch_ = std::move(watch);
  }

  // --- Device
  std::byte* allocate(Bytes bytes) override { return arena_.allocate(bytes, in_use()); }
  void release(std::byte* data, Bytes) noexcept override { arena_.release(data); }
  std::byte* allocate_pinned(Bytes bytes) override;
  void release_pinned(std::byte* data, Bytes bytes) noexcept override;

  using Device::convert;
  void zero(std::byte* to, Bytes bytes) override;
  void convert(const std::byte* from,
               DType from_dtype,
               std::byte* to,
               DType to_dtype,
               Elements count,
               double factor) override;
  void add_to(std::byte* to,
              DType to_dtype,
              const std::byte* from,
              DType from_dtype,
              Elements count) override;
  void adamw(const UpdateState& state,
             const AdamWOptions& options,
             std::int64_t step,
             double gradient_scale) override;
  void add_squares_of(const std::byte* data, DType dtype, Elements count, Scalar to) override;
  void find_overflow(const std::byte* data, DType dtype, Elements count) override;
  void upload(std::byte* to, const void* from, Bytes bytes) override;
  void download(void* to, const std::byte* from, Bytes bytes) override;
  double take(Scalar scalar) override;
  void synchronize() override;

  using Device::wait;
  Fence record(Queue queue) override;
  void wait(Queue queue, const Fence& fence) override;
  DeviceUse measured_use() override;

 private:
  void order_held();
  // For work on the queue in use.
  cudaStream_t current() {
    order_held();
    return stream(in_use());
  }
  bool is_pinned(const std::byte* data) const;
  // Kernels reach it.
  bool is_reached(const std::byte* data) const { return holds(data) || is_pinned(data); }
  // Work on the queue in use reads or writes it.
  void use_in_stream(const std::byte* data);
  // Before the host touches memory that the streams may touch.
  void wait_for_host_memory();
  void copy_in_stream(std::byte* to, const std::byte* from, Bytes bytes);
  double* device_scalar(Scalar scalar);

  // --- Arena::Backend
  std::byte* take_segment(Bytes bytes) override;
  void return_segment(std::byte* data, Bytes bytes) noexcept override;
  bool passed(const Fence& fence) override;
  void drain() override { synchronize(); }

  std::array<cudaStream_t, kQueueCount + 1> streams_{};
  std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>();
  double* scalars_ = nullptr;              // on the device
  std::array<bool, kScalarCount> used_{};  // since they were taken
  std::map<const std::byte*, Bytes> pinned_;
  bool host_memory_in_streams_ = false;
  Bytes free_before_;
  std::function<void(std::chrono::steady_clock::duration)> watch_;
  HeldCalls* held_ = nullptr;
  std::exception_ptr failed_;  // what held calls said where nothing may be thrown
  Arena arena_{*this};
};

}  // namespace zeroplan::runtime::cuda
