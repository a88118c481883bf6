// Where the kernels under test run: the same cases run by emulation everywhere
// (emulated_device.cpp) and on a GPU, where one of these stands for it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/cuda/kernels/cuda_kernels.hpp"

namespace zeroplan::testing {

class KernelDevice {
 public:
  virtual ~KernelDevice() = default;
  // Memory that begins `offset` bytes past an address aligned to 256; filled with 0xff.
  virtual std::byte* allocate(std::size_t bytes, std::size_t offset) = 0;
  virtual void upload(std::byte* to, const std::vector<std::byte>& from) = 0;
  virtual std::vector<std::byte> download(const std::byte* from, std::size_t bytes) = 0;
  // Frees everything; what was wrong with memory (written past its end), or nothing.
  virtual std::string release() = 0;
  virtual runtime::cuda::Stream stream() = 0;
  virtual runtime::Kernels& kernels() = 0;
  // Ways to order what has no order; results may not depend on it. On a GPU: runs.
  virtual int orders() const = 0;
  virtual void set_order(int order) = 0;
  // Who computes attention: kernels() of way 0 are this program's own. On a GPU those of way 1 are
  // the library's with sums in one order, of way 2 the library's as it likes.
  virtual int ways() const { return 1; }
  virtual void set_way(int) {}
  // A library is there that has to compute what it is asked.
  virtual bool has_library() const { return false; }
};

KernelDevice& kernel_device();

}  // namespace zeroplan::testing
