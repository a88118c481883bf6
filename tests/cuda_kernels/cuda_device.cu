// The cases of this folder on a GPU; without one the program ends with 77, which ctest counts as
// skipped. Compiled by nvcc alone.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <dlfcn.h>

#include "runtime/cuda/kernels/device.cuh"
#include "runtime/cuda/kernels/library_attention.hpp"
#include "tests/cuda_kernels/device.hpp"

namespace zeroplan::testing {
namespace {

using runtime::cuda::AttentionBy;
using runtime::cuda::check_cuda;

constexpr std::size_t kBefore = 256;
constexpr std::size_t kGuard = 64;
constexpr int kGuardByte = 0x5a;

struct Allocation {
  std::byte* base;
  std::size_t before, bytes;
};

class CudaDevice final : public KernelDevice {
 public:
  CudaDevice() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    set_way(0);
  }

  std::byte* allocate(std::size_t bytes, std::size_t offset) override {
    Allocation made{nullptr, kBefore + offset, bytes};
    void* base = nullptr;
    check_cuda(cudaMalloc(&base, made.before + bytes + kGuard), "cudaMalloc");
    made.base = static_cast<std::byte*>(base);
    held_.push_back(made);
    const std::size_t all = made.before + bytes + kGuard;
    check_cuda(cudaMemsetAsync(base, kGuardByte, all, stream_), "cudaMemsetAsync");
    std::byte* data = made.base + made.before;
    if (bytes != 0) check_cuda(cudaMemsetAsync(data, 0xff, bytes, stream_), "cudaMemsetAsync");
    return data;
  }
  void upload(std::byte* to, const std::vector<std::byte>& from) override {
    if (from.empty()) return;
    check_cuda(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream_),
               "cudaMemcpyAsync");
    check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  std::vector<std::byte> download(const std::byte* from, std::size_t bytes) override {
    std::vector<std::byte> to(bytes);
    if (bytes == 0) return to;
    check_cuda(cudaMemcpyAsync(to.data(), from, bytes, cudaMemcpyDeviceToHost, stream_),
               "cudaMemcpyAsync");
    check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return to;
  }
  std::string release() override {
    bool whole = true;
    for (const Allocation& each : held_) {
      const auto is_guard = [](std::byte b) { return b == static_cast<std::byte>(kGuardByte); };
      const std::vector<std::byte> all = download(each.base, each.before + each.bytes + kGuard);
      const auto data = all.begin() + static_cast<std::ptrdiff_t>(each.before);
      const auto end = data + static_cast<std::ptrdiff_t>(each.bytes);
      whole = whole && std::all_of(all.begin(), data, is_guard) &&
              std::all_of(end, all.end(), is_guard);
      check_cuda(cudaFree(each.base), "cudaFree");
    }
    held_.clear();
    return whole ? "" : "a kernel wrote outside of its operands";
  }
  runtime::cuda::Stream stream() override { return stream_; }
  runtime::Kernels& kernels() override { return *kernels_; }
  // Runs, whose bits agree; but of sums in any order.
  int orders() const override { return way_ == 2 ? 1 : 3; }
  void set_order(int) override {}
  // Where the library is not found the last ways are own kernels', too.
  int ways() const override { return 3; }
  void set_way(int way) override {
    constexpr AttentionBy kWays[] = {
        AttentionBy::own, AttentionBy::reproducible, AttentionBy::asked};
    kernels_.reset();
    kernels_ = runtime::cuda::cuda_kernels(stream_, {.attention = kWays[way]});
    way_ = way;
  }
  // As runtime/cuda/cudnn looks for it; plans that the tests ask for came with 9.8 at the latest.
  bool has_library() const override {
    static const bool kFound = [] {
      try {
        (void)runtime::cuda::make_library_attention(nullptr, {.attention = AttentionBy::library});
      } catch (const std::exception&) {
        return false;  // built without it
      }
      void* const library = ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) return false;
      const auto version = reinterpret_cast<std::size_t (*)()>(::dlsym(library, "cudnnGetVersion"));
      return version != nullptr && version() >= 90800;
    }();
    return kFound;
  }

 private:
  int way_ = 0;
  cudaStream_t stream_ = nullptr;  // until the program ends
  std::unique_ptr<runtime::Kernels> kernels_;
  std::vector<Allocation> held_;
};

}  // namespace

KernelDevice& kernel_device() {
  static CudaDevice* device = [] {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      std::puts("no CUDA device: skipped");
      std::exit(77);
    }
    return new CudaDevice;  // outlives the CUDA runtime's own end
  }();
  return *device;
}

}  // namespace zeroplan::testing
