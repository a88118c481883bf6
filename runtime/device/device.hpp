// What a rank's engine does with memory that the host may not touch: the GPU's, or on CPU ranks
// the memory that stands for it.
//
// Flow: Memory takes bytes here and keeps their account; RankEngine and GraphRunner order work on
// them; Kernels compute on the device's compute queue. Work is ordered by queues (streams): calls
// return before it is done, work of one queue runs in the order of the calls, work of two only
// where wait() or a Fence says so. The host sees results through download(), take() and
// synchronize(), which wait. An operand may be anywhere, the device knows what is its own; work on
// host memory alone (offloaded state) runs on the host, after what the queues still do with host
// memory.
//
// A buffer given back may still be in use by queued work: the device hands it out again in an order
// that does no harm.
//
// A Device belongs to one rank and is used by that rank's thread alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>

#include "base/units.hpp"
#include "model/dtype.hpp"
#include "runtime/optimizer/adamw.hpp"

namespace zeroplan::runtime {

// A call of the device's interface that failed: what was called, where, what it said.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// compute: kernels and everything that nothing else is said about. reduce: gradients on their way
// to their owner, beside the backward pass (overlap_comm). copy: transfers to the host.
enum class Queue : std::uint8_t { compute, reduce, copy };
inline constexpr std::size_t kQueueCount = 3;

// A point of a queue; empty: nothing to wait for.
using Fence = std::shared_ptr<void>;

// Numbers that the device sums up and the host reads.
enum class Scalar : std::uint8_t { group_squares, squares, overflow };
inline constexpr std::size_t kScalarCount = 3;

// Kernel calls that were launched together, as graphs (runtime/cuda/graphed_kernels.hpp).
struct GraphUse {
  bool on = false;
  std::int64_t calls = 0;           // of kernels, by graphs or not
  std::int64_t replayed_calls = 0;  // by graphs
  std::int64_t replays = 0;         // launches of a graph
  std::int64_t captured = 0;        // graphs that were made
  std::int64_t graphs = 0;          // of them, those that are still there
  std::int64_t refused = 0;         // segments of which there can be none
};

// What the driver says beside the account of Memory; zero where there is no driver.
struct DeviceUse {
  Bytes reserved;  // by the allocator, in segments
  Bytes measured;  // less free memory than when the device was opened
  GraphUse graphs;
};

class Device {
 public:
  virtual ~Device() = default;

  // --- bytes, for Memory. Aligned to 512; null where there are no more.
  virtual std::byte* allocate(Bytes bytes) = 0;
  virtual void release(std::byte* data, Bytes bytes) noexcept = 0;
  virtual std::byte* allocate_pinned(Bytes bytes) = 0;
  virtual void release_pinned(std::byte* data, Bytes bytes) noexcept = 0;

  // --- work on the queue in use; see tensor_ops.hpp and adamw.hpp
  virtual void zero(std::byte* to, Bytes bytes) = 0;
  virtual void convert(const std::byte* from,
                       DType from_dtype,
                       std::byte* to,
                       DType to_dtype,
                       Elements count,
                       double factor) = 0;
  void convert(
      const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, Elements count) {
    convert(from, from_dtype, to, to_dtype, count, 1.0);
  }
  virtual void add_to(
      std::byte* to, DType to_dtype, const std::byte* from, DType from_dtype, Elements count) = 0;
  // On the host where the weights are there, else on the device.
  virtual void adamw(const UpdateState& state,
                     const AdamWOptions& options,
                     std::int64_t step,
                     double gradient_scale) = 0;
  virtual void add_squares_of(const std::byte* data, DType dtype, Elements count, Scalar to) = 0;
  // Scalar::overflow becomes 1 where there is inf or nan.
  virtual void find_overflow(const std::byte* data, DType dtype, Elements count) = 0;
  // From ordinary host memory, which may go when the call returns.
  virtual void upload(std::byte* to, const void* from, Bytes bytes) = 0;

  // --- what the host waits for
  virtual void download(void* to, const std::byte* from, Bytes bytes) = 0;
  // The value, which becomes 0.
  virtual double take(Scalar scalar) = 0;
  virtual void synchronize() = 0;

  // --- order
  virtual void use(Queue queue) = 0;
  virtual Queue in_use() const = 0;
  virtual Fence record(Queue queue) = 0;
  virtual void wait(Queue queue, const Fence& fence) = 0;
  // Everything ordered on `other` so far comes before what follows on `queue`.
  void wait(Queue queue, Queue other) {
    if (queue != other) wait(queue, record(other));
  }

  virtual DeviceUse measured_use() { return {}; }
};

// What follows goes to another queue, behind what the queue in use has got so far; until the end of
// the scope.
class OnQueue {
 public:
  OnQueue(Device& device, Queue queue) : device_(device), before_(device.in_use()) {
    if (queue == before_) return;
    device_.wait(queue, before_);
    device_.use(queue);
  }
  OnQueue(const OnQueue&) = delete;
  OnQueue& operator=(const OnQueue&) = delete;
  ~OnQueue() { device_.use(before_); }

 private:
  Device& device_;
  Queue before_;
};

// Of a CPU rank: the host's memory, work done when the call returns. `threads` take part in AdamW.
std::unique_ptr<Device> host_device(int threads);

}  // namespace zeroplan::runtime
