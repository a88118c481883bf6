#include <algorithm>
#include <array>
#include <memory>
#include <new>

#include "tests/cuda_emulation/emulator.hpp"
#include "tests/cuda_kernels/device.hpp"

namespace zeroplan::testing {
namespace {

namespace emulation = runtime::cuda::emulation;

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kGuard = 64;
constexpr auto kGuardByte = std::byte{0x5a};

// Fewer where each takes ten times as long.
using Order = emulation::Schedule::Order;
#if defined(__SANITIZE_ADDRESS__)
constexpr std::array<emulation::Schedule, 2> kOrders{{{Order::reversed}, {Order::shuffled, 3}}};
#else
constexpr std::array<emulation::Schedule, 4> kOrders{
    {{Order::forward}, {Order::reversed}, {Order::shuffled, 2}, {Order::shuffled, 3}}};
#endif

// Exactly as large as asked for under AddressSanitizer; guard bytes around it for the others.
class Allocation {
 public:
  Allocation(std::size_t bytes, std::size_t offset)
      : bytes_(bytes),
        before_(kAlignment + offset),
        base_(static_cast<std::byte*>(
            ::operator new (before_ + bytes + guard(), std::align_val_t{kAlignment}))) {
    std::fill_n(base_, before_, kGuardByte);
    std::fill_n(data(), bytes, std::byte{0xff});
    std::fill_n(data() + bytes, guard(), kGuardByte);
  }
  ~Allocation() { ::operator delete (base_, std::align_val_t{kAlignment}); }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  std::byte* data() const { return base_ + before_; }
  bool whole() const {
    const auto is_guard = [](std::byte b) { return b == kGuardByte; };
    return std::all_of(base_, base_ + before_, is_guard) &&
           std::all_of(data() + bytes_, data() + bytes_ + guard(), is_guard);
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::size_t guard() { return 0; }
#else
  static constexpr std::size_t guard() { return kGuard; }
#endif
  std::size_t bytes_, before_;
  std::byte* base_;
};

class EmulatedDevice final : public KernelDevice {
 public:
  std::byte* allocate(std::size_t bytes, std::size_t offset) override {
    held_.push_back(std::make_unique<Allocation>(bytes, offset));
    return held_.back()->data();
  }
  void upload(std::byte* to, const std::vector<std::byte>& from) override {
    std::copy(from.begin(), from.end(), to);
  }
  std::vector<std::byte> download(const std::byte* from, std::size_t bytes) override {
    return {from, from + bytes};
  }
  std::string release() override {
    const bool whole =
        std::all_of(held_.begin(), held_.end(), [](const auto& a) { return a->whole(); });
    held_.clear();
    return whole ? "" : "a kernel wrote outside of its operands";
  }
  runtime::cuda::Stream stream() override { return nullptr; }
  runtime::Kernels& kernels() override { return *kernels_; }
  int orders() const override { return static_cast<int>(kOrders.size()); }
  void set_order(int order) override {
    emulation::set_schedule(kOrders[static_cast<std::size_t>(order)]);
  }

 private:
  std::unique_ptr<runtime::Kernels> kernels_ = runtime::cuda::cuda_kernels(nullptr);
  std::vector<std::unique_ptr<Allocation>> held_;
};

}  // namespace

KernelDevice& kernel_device() {
  static EmulatedDevice device;
  return device;
}

}  // namespace zeroplan::testing
