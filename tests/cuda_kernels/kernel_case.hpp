// One kernel call on the CPU and on the device under test, operand by operand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/kernels/kernels.hpp"
#include "tests/cuda_kernels/device.hpp"

namespace zeroplan::testing {

// How far a result may be from the CPU's, whose kernels sum in another order.
//   |device - cpu| <= own |cpu| + inner largest + absolute, largest: of the CPU's in this operand
// own is one step of the stored format: two fp32 values that differ by less than a step may be
// rounded to neighbours. inner is relative to the sums inside.
struct Tolerance {
  double inner = 0.0;
  double absolute = 0.0;  // where results are differences of much larger sums
  // A library may round a product to the stored format before something is added to it: half a step
  // of the largest.
  bool product_rounded = false;
};

// For sums of `terms` products in fp32: (terms + 8) 2^-24 of the sum of magnitudes (Higham 2002,
// Accuracy and Stability of Numerical Algorithms, section 4.2: gamma_n), 8 for the functions around
// it, of a few units in the last place each (CUDA C++ Programming Guide, mathematical functions).
Tolerance sum_of(std::int64_t terms);

class KernelCase {
 public:
  explicit KernelCase(Kernel kernel, KernelCall call = {});

  // Operands, in the call's order. Numbers in (-width, width) + shift.
  KernelCase& in(std::int64_t count, float width = 1.0F, float shift = 0.0F);
  KernelCase& in_fp32(std::vector<float> values);
  KernelCase& in_fp32(std::int64_t count, float width = 1.0F, float shift = 0.0F);
  KernelCase& out(std::int64_t count);
  KernelCase& out_fp32(std::int64_t count);
  KernelCase& update(std::int64_t count, float width = 1.0F);
  KernelCase& ids(std::vector<std::int64_t> values);
  KernelCase& none();
  // The operand before is written, too.
  KernelCase& written();
  // The memory of an earlier or later operand.
  KernelCase& same_as(std::size_t operand);

  // Operands begin one element past an aligned address.
  KernelCase& misaligned();
  // That operand does, and the others are aligned.
  KernelCase& misaligned(std::size_t operand);
  // An output that is compared in bits with the CPU's.
  KernelCase& exact(std::size_t operand);
  // Takes the CPU's results of `forward` as this case's operand.
  KernelCase& fill(std::size_t operand, std::vector<float> values);

  // Runs with operands of the format on the CPU, and on the device in every order; compares.
  void check(DType dtype, Tolerance tolerance);
  void check_all(Tolerance tolerance);  // fp32, bf16, fp16

  // The CPU's result, as floats.
  std::vector<float> cpu_result(DType dtype, std::size_t operand);

 private:
  struct Part {
    enum class Is { model, fp32, int64, none } is = Is::model;
    bool read = false, written = false, exact = false, misaligned = false;
    std::int64_t count = 0;
    float width = 1.0F, shift = 0.0F;
    std::vector<float> values;  // instead of numbers by width
    std::vector<std::int64_t> integers;
    std::optional<std::size_t> alias;
  };
  using Memory = std::vector<std::vector<std::byte>>;

  KernelCase& add(Part part);
  DType dtype_of(const Part& part, DType model) const;
  Memory inputs(DType dtype) const;
  Memory on_cpu(DType dtype, Memory memory) const;
  Memory on_device(DType dtype, const Memory& memory) const;
  void compare(std::size_t operand,
               DType dtype,
               const Memory& cpu,
               const Memory& device,
               Tolerance tolerance) const;
  std::vector<runtime::Operand> operands(DType dtype, const std::vector<std::byte*>& data) const;

  KernelCall call_;
  std::vector<Part> parts_;
};

std::vector<float> floats_of(const std::vector<std::byte>& data, DType dtype);
std::vector<std::byte> bytes_of(const std::vector<float>& values, DType dtype);
std::vector<float> noise(std::int64_t count, std::uint64_t seed, float width = 1.0F);

}  // namespace zeroplan::testing
