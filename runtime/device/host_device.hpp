// The device of a CPU rank, as a class, for who adds to it: the CUDA device leaves to it what
// happens on the host, the tests' guarded device checks who touches what.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include "runtime/device/device.hpp"
#include "runtime/kernels/thread_pool.hpp"

namespace zeroplan::runtime {

class HostDevice : public Device {
 public:
  // threads: that a conversion, a sum or an update may take.
  explicit HostDevice(int threads) : threads_(threads) {}

  std::byte* allocate(Bytes bytes) override;
  void release(std::byte* data, Bytes bytes) noexcept override;
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
  void synchronize() override {}

  using Device::wait;
  void use(Queue queue) override { in_use_ = queue; }
  Queue in_use() const override { return in_use_; }
  Fence record(Queue) override { return {}; }
  void wait(Queue, const Fence&) override {}

 private:
  // Calls body(index, begin, size) for pieces that do not depend on the number of threads, and
  // returns when all are done. It must not throw.
  void in_pieces(Elements count, const std::function<void(std::int64_t, Elements, Elements)>& body);

  int threads_ = 1;
  std::unique_ptr<ThreadPool> pool_;  // from the first work of several pieces on
  Queue in_use_ = Queue::compute;
  std::array<double, kScalarCount> scalars_{};
};

}  // namespace zeroplan::runtime
