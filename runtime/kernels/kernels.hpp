// The kernels behind Kernel (model/graph/kernel_call.hpp), on one device.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/units.hpp"
#include "model/dtype.hpp"
#include "model/graph/kernel_call.hpp"

namespace zeroplan::runtime {

// Memory as a kernel sees it: dense, row-major. data is null where a call goes without the operand.
struct Operand {
  std::byte* data = nullptr;
  Elements elements;
  DType dtype = DType::fp32;

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  // Runs `call`; operands in the call's order. Sums are taken in fp32 whatever the dtype. On a GPU
  // it returns before the work is done. Preconditions (ZP_CHECK): sizes of operands and call agree.
  virtual void run(const KernelCall& call, std::span<const Operand> operands) = 0;

  // Scratch memory on the device that all calls share. Whoever accounts for memory gives it before
  // the first call, and takes it back (null) when the device is done with the last; kernels that
  // are given none take it themselves.
  virtual Bytes workspace_bytes() const { return Bytes::zero(); }
  virtual void use_workspace(std::byte*) {}
};

// The format of weights and activations, the same for all of a call's operands; fp32 where it has
// none. Precondition (ZP_CHECK): operands and call agree.
DType check_operands(const KernelCall& call, std::span<const Operand> operands);

// On the CPU; `threads` of this rank take part. The same bits come out for any number of threads.
std::unique_ptr<Kernels> cpu_kernels(int threads);

}  // namespace zeroplan::runtime
