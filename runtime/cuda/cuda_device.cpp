#include "runtime/cuda/cuda_device.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "runtime/cuda/cuda_check.hpp"
#include "runtime/cuda/kernels/cuda_kernels.hpp"

namespace zeroplan::runtime::cuda {
namespace {

using Clock = std::chrono::steady_clock;

std::size_t size_of(Bytes bytes) { return static_cast<std::size_t>(bytes.count()); }

}  // namespace

EventPool::~EventPool() {
  for (cudaEvent_t event : free_) ZP_CUDA_LOG(cudaEventDestroy(event));
}

Fence EventPool::record(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      event = free_.back();
      free_.pop_back();
    }
  }
  if (event == nullptr) ZP_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  Fence fence(event, [pool = shared_from_this()](void* done) {
    const std::lock_guard lock(pool->mutex_);
    pool->free_.push_back(static_cast<cudaEvent_t>(done));
  });
  ZP_CUDA(cudaEventRecord(event, stream));
  return fence;
}

CudaDevice::CudaDevice(int ordinal, int threads) : HostDevice(threads) {
  ZP_CUDA(cudaSetDevice(ordinal));
  std::size_t free = 0;
  std::size_t total = 0;
  ZP_CUDA(cudaMemGetInfo(&free, &total));  // makes the context, which is not counted
  free_before_ = Bytes::of(static_cast<std::int64_t>(free));
  for (cudaStream_t& stream : streams_) {
    ZP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  const std::size_t bytes = sizeof(double) * kScalarCount;
  ZP_CUDA(cudaMalloc(reinterpret_cast<void**>(&scalars_), bytes));
  ZP_CUDA(cudaMemsetAsync(scalars_, 0, bytes, stream(Queue::compute)));
  ZP_CUDA(cudaStreamSynchronize(stream(Queue::compute)));
}

CudaDevice::~CudaDevice() {
  for (cudaStream_t stream : streams_) {
    ZP_CUDA_LOG(cudaStreamSynchronize(stream));
    try {
      release_workspace(stream);
    } catch (const std::exception&) {
      // The device has failed, and who noticed has said so.
    }
    ZP_CUDA_LOG(cudaStreamDestroy(stream));
  }
  ZP_CUDA_LOG(cudaFree(scalars_));
}

// --- memory

std::byte* CudaDevice::take_segment(Bytes bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, size_of(bytes));
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return nullptr;
  }
  check(status, "cudaMalloc");
  return static_cast<std::byte*>(data);
}

void CudaDevice::return_segment(std::byte* data, Bytes) noexcept { ZP_CUDA_LOG(cudaFree(data)); }

// Seen from every context and mapped, so that kernels reach it.
std::byte* CudaDevice::allocate_pinned(Bytes bytes) {
  void* data = nullptr;
  const cudaError_t status =
      cudaHostAlloc(&data, size_of(bytes), cudaHostAllocPortable | cudaHostAllocMapped);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return nullptr;
  }
  check(status, "cudaHostAlloc");
  auto* bytes_of = static_cast<std::byte*>(data);
  pinned_[bytes_of] = bytes;
  return bytes_of;
}

void CudaDevice::release_pinned(std::byte* data, Bytes) noexcept {
  try {
    order_held();
  } catch (...) {
    failed_ = std::current_exception();
  }
  pinned_.erase(data);
  // Waits for what the streams still do with it.
  ZP_CUDA_LOG(cudaFreeHost(data));
}

bool CudaDevice::is_pinned(const std::byte* data) const {
  auto at = pinned_.upper_bound(data);
  if (at == pinned_.begin()) return false;
  --at;
  return data < at->first + at->second.count();
}

DeviceUse CudaDevice::measured_use() {
  std::size_t free = 0;
  std::size_t total = 0;
  ZP_CUDA(cudaMemGetInfo(&free, &total));
  return {.reserved = arena_.reserved(),
          .measured = free_before_ - Bytes::of(static_cast<std::int64_t>(free)),
          .graphs = held_ == nullptr ? GraphUse{} : held_->use()};
}

// --- order

void CudaDevice::order_held() {
  if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
  if (held_ != nullptr) held_->order();
}

// Calls that are held are of the compute queue: what is said about others does not reach them.
Fence CudaDevice::record(Queue queue) {
  if (queue == Queue::compute) order_held();
  return events_->record(stream(queue));
}

void CudaDevice::wait(Queue queue, const Fence& fence) {
  if (!fence) return;
  if (queue == Queue::compute) order_held();
  ZP_CUDA(cudaStreamWaitEvent(stream(queue), event_of(fence), 0));
}

bool CudaDevice::passed(const Fence& fence) {
  const cudaError_t status = cudaEventQuery(event_of(fence));
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  check(status, "cudaEventQuery");
  return true;
}

// With somebody who watches, by asking: a collective that will never come would hold the host in
// the driver for ever.
void CudaDevice::synchronize() {
  order_held();
  const auto begin = Clock::now();
  for (cudaStream_t stream : streams_) {
    if (!watch_) {
      ZP_CUDA(cudaStreamSynchronize(stream));
      continue;
    }
    for (;;) {
      const cudaError_t status = cudaStreamQuery(stream);
      if (status == cudaSuccess) break;
      if (status != cudaErrorNotReady) check(status, "cudaStreamQuery");
      (void)cudaGetLastError();
      const auto waited = Clock::now() - begin;
      watch_(waited);
      constexpr auto kSpin = std::chrono::microseconds(200);
      if (waited > kSpin) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  host_memory_in_streams_ = false;
  arena_.drained();
}

void CudaDevice::use_in_stream(const std::byte* data) {
  if (holds(data)) {
    touch(data);
  } else {
    host_memory_in_streams_ = true;
  }
}

void CudaDevice::wait_for_host_memory() {
  if (host_memory_in_streams_) synchronize();
}

// --- work

void CudaDevice::copy_in_stream(std::byte* to, const std::byte* from, Bytes bytes) {
  use_in_stream(from);
  use_in_stream(to);
  ZP_CUDA(cudaMemcpyAsync(to, from, size_of(bytes), cudaMemcpyDefault, current()));
}

void CudaDevice::zero(std::byte* to, Bytes bytes) {
  if (!holds(to)) {
    wait_for_host_memory();
    HostDevice::zero(to, bytes);
    return;
  }
  touch(to);
  ZP_CUDA(cudaMemsetAsync(to, 0, size_of(bytes), current()));
}

void CudaDevice::convert(const std::byte* from,
                         DType from_dtype,
                         std::byte* to,
                         DType to_dtype,
                         Elements count,
                         double factor) {
  if (count == Elements::zero()) return;
  const bool same = from_dtype == to_dtype && factor == 1.0;
  if (same && from == to) return;
  if (!holds(from) && !holds(to)) {
    wait_for_host_memory();
    HostDevice::convert(from, from_dtype, to, to_dtype, count, factor);
  } else if (same) {
    copy_in_stream(to, from, count * to_dtype);
  } else if (is_reached(from) && is_reached(to)) {
    use_in_stream(from);
    use_in_stream(to);
    cuda::convert(current(), from, from_dtype, to, to_dtype, count, factor);
  } else if (holds(to)) {
    wait_for_host_memory();
    std::vector<std::byte> converted(size_of(count * to_dtype));
    HostDevice::convert(from, from_dtype, converted.data(), to_dtype, count, factor);
    upload(to, converted.data(), count * to_dtype);
  } else {
    std::vector<std::byte> raw(size_of(count * from_dtype));
    download(raw.data(), from, count * from_dtype);
    HostDevice::convert(raw.data(), from_dtype, to, to_dtype, count, factor);
  }
}

void CudaDevice::add_to(
    std::byte* to, DType to_dtype, const std::byte* from, DType from_dtype, Elements count) {
  if (count == Elements::zero()) return;
  if (!holds(from) && !holds(to)) {
    wait_for_host_memory();
    HostDevice::add_to(to, to_dtype, from, from_dtype, count);
  } else if (is_reached(from) && is_reached(to)) {
    use_in_stream(from);
    use_in_stream(to);
    cuda::add_to(current(), to, to_dtype, from, from_dtype, count);
  } else {
    ZP_CHECK(holds(from), "nothing is added from pageable memory to the device");
    std::vector<std::byte> raw(size_of(count * from_dtype));
    download(raw.data(), from, count * from_dtype);
    HostDevice::add_to(to, to_dtype, raw.data(), from_dtype, count);
  }
}

void CudaDevice::adamw(const UpdateState& state,
                       const AdamWOptions& options,
                       std::int64_t step,
                       double gradient_scale) {
  if (!holds(state.weights)) {
    ZP_CHECK(!holds(state.gradient), "an update on the host reads a gradient there");
    wait_for_host_memory();
    HostDevice::adamw(state, options, step, gradient_scale);
    return;
  }
  ZP_CHECK(holds(state.first_moment) && holds(state.second_moment) && is_reached(state.gradient),
           "an update on the device has its state there");
  const std::byte* const used[] = {
      state.weights, state.first_moment, state.second_moment, state.gradient};
  for (const std::byte* data : used) use_in_stream(data);
  if (state.rounded != nullptr) {
    ZP_CHECK(holds(state.rounded), "an update on the device leaves its weights there");
    touch(state.rounded);
  }
  cuda::adamw(current(), state, options, step, gradient_scale);
}

double* CudaDevice::device_scalar(Scalar scalar) {
  const auto index = static_cast<std::size_t>(scalar);
  used_[index] = true;
  return scalars_ + index;
}

void CudaDevice::add_squares_of(const std::byte* data, DType dtype, Elements count, Scalar to) {
  if (count == Elements::zero()) return;
  if (!holds(data)) {
    wait_for_host_memory();
    HostDevice::add_squares_of(data, dtype, count, to);
    return;
  }
  touch(data);
  cuda::add_squares_of(current(), data, dtype, count, device_scalar(to));
}

void CudaDevice::find_overflow(const std::byte* data, DType dtype, Elements count) {
  if (count == Elements::zero()) return;
  if (!holds(data)) {
    wait_for_host_memory();
    HostDevice::find_overflow(data, dtype, count);
    return;
  }
  touch(data);
  cuda::find_overflow(current(), data, dtype, count, device_scalar(Scalar::overflow));
}

// From pageable memory the call returns when the source was read.
void CudaDevice::upload(std::byte* to, const void* from, Bytes bytes) {
  if (bytes == Bytes::zero()) return;
  if (!holds(to)) {
    wait_for_host_memory();
    HostDevice::upload(to, from, bytes);
    return;
  }
  touch(to);
  ZP_CUDA(cudaMemcpyAsync(to, from, size_of(bytes), cudaMemcpyHostToDevice, current()));
}

// --- what the host waits for

void CudaDevice::download(void* to, const std::byte* from, Bytes bytes) {
  if (bytes == Bytes::zero()) return;
  synchronize();
  if (!holds(from)) {
    HostDevice::download(to, from, bytes);
    return;
  }
  ZP_CUDA(cudaMemcpyAsync(to, from, size_of(bytes), cudaMemcpyDeviceToHost, current()));
  ZP_CUDA(cudaStreamSynchronize(current()));
}

double CudaDevice::take(Scalar scalar) {
  const double on_host = HostDevice::take(scalar);
  const auto index = static_cast<std::size_t>(scalar);
  if (!std::exchange(used_[index], false)) return on_host;
  synchronize();
  double value = 0.0;
  ZP_CUDA(
      cudaMemcpyAsync(&value, scalars_ + index, sizeof value, cudaMemcpyDeviceToHost, current()));
  ZP_CUDA(cudaMemsetAsync(scalars_ + index, 0, sizeof value, current()));
  ZP_CUDA(cudaStreamSynchronize(current()));
  return scalar == Scalar::overflow ? std::max(value, on_host) : value + on_host;
}

}  // namespace zeroplan::runtime::cuda
