#include "tests/cuda_kernels/kernel_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "runtime/kernels/cpu_float.hpp"
#include "tests/catch.hpp"
#include "tests/runtime/hashed_model.hpp"

namespace zeroplan::testing {
namespace {

template <typename T>
std::vector<std::byte> stored(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T value = runtime::from_float<T>(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

template <typename T>
std::vector<float> loaded(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value{};
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = runtime::to_float(value);
  }
  return values;
}

// One step of the format, relative: 2^-23, 2^-7, 2^-10.
double step(DType dtype) {
  if (dtype == DType::bf16) return 0x1p-7;
  return dtype == DType::fp16 ? 0x1p-10 : 0x1p-23;
}

}  // namespace

std::vector<float> floats_of(const std::vector<std::byte>& data, DType dtype) {
  if (dtype == DType::bf16) return loaded<runtime::Bf16>(data);
  if (dtype == DType::fp16) return loaded<runtime::Fp16>(data);
  return loaded<float>(data);
}
std::vector<std::byte> bytes_of(const std::vector<float>& values, DType dtype) {
  if (dtype == DType::bf16) return stored<runtime::Bf16>(values);
  if (dtype == DType::fp16) return stored<runtime::Fp16>(values);
  return stored<float>(values);
}
std::vector<float> noise(std::int64_t count, std::uint64_t seed, float width) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back((2.0F * uniform(seed * 7919, i) - 1.0F) * width);
  }
  return values;
}

Tolerance sum_of(std::int64_t terms) { return {static_cast<double>(terms + 8) * 0x1p-24}; }

KernelCase::KernelCase(Kernel kernel, KernelCall call) : call_(std::move(call)) {
  call_.kernel = kernel;
}

KernelCase& KernelCase::add(Part part) {
  const bool given = part.is != Part::Is::none;
  call_.operands.push_back({given ? KernelOperand::From::storage : KernelOperand::From::none, -1});
  parts_.push_back(std::move(part));
  return *this;
}
KernelCase& KernelCase::in(std::int64_t count, float width, float shift) {
  Part part;
  part.read = true;
  part.count = count;
  part.width = width;
  part.shift = shift;
  return add(part);
}
KernelCase& KernelCase::in_fp32(std::vector<float> values) {
  in(static_cast<std::int64_t>(values.size()));
  parts_.back().is = Part::Is::fp32;
  parts_.back().values = std::move(values);
  return *this;
}
KernelCase& KernelCase::in_fp32(std::int64_t count, float width, float shift) {
  in(count, width, shift);
  parts_.back().is = Part::Is::fp32;
  return *this;
}
KernelCase& KernelCase::out(std::int64_t count) {
  Part part;
  part.written = true;
  part.count = count;
  return add(part);
}
KernelCase& KernelCase::out_fp32(std::int64_t count) {
  out(count);
  parts_.back().is = Part::Is::fp32;
  return *this;
}
KernelCase& KernelCase::update(std::int64_t count, float width) {
  in(count, width);
  parts_.back().written = true;
  return *this;
}
KernelCase& KernelCase::ids(std::vector<std::int64_t> values) {
  in(static_cast<std::int64_t>(values.size()));
  parts_.back().is = Part::Is::int64;
  parts_.back().integers = std::move(values);
  return *this;
}
KernelCase& KernelCase::none() {
  Part part;
  part.is = Part::Is::none;
  return add(part);
}
KernelCase& KernelCase::same_as(std::size_t operand) {
  Part part;
  part.alias = operand;
  return add(part);
}
KernelCase& KernelCase::written() {
  parts_.back().written = true;
  return *this;
}
KernelCase& KernelCase::misaligned() {
  for (Part& part : parts_) part.misaligned = true;
  return *this;
}
KernelCase& KernelCase::misaligned(std::size_t operand) {
  parts_.at(operand).misaligned = true;
  return *this;
}
KernelCase& KernelCase::exact(std::size_t operand) {
  parts_[operand].exact = true;
  return *this;
}
KernelCase& KernelCase::fill(std::size_t operand, std::vector<float> values) {
  parts_[operand].values = std::move(values);
  return *this;
}

DType KernelCase::dtype_of(const Part& part, DType model) const {
  if (part.is == Part::Is::fp32) return DType::fp32;
  return part.is == Part::Is::int64 ? DType::int64 : model;
}

// What is not read is full of NaN.
KernelCase::Memory KernelCase::inputs(DType dtype) const {
  Memory memory;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const DType type = dtype_of(part, dtype);
    const auto bytes = static_cast<std::size_t>(part.count * width(type));
    if (part.is == Part::Is::int64) {
      memory.emplace_back(bytes);
      std::memcpy(memory.back().data(), part.integers.data(), bytes);
    } else if (!part.values.empty()) {
      memory.push_back(bytes_of(part.values, type));
    } else if (part.read) {
      std::vector<float> values = noise(part.count, i + 11, part.width);
      for (float& value : values) value += part.shift;
      memory.push_back(bytes_of(values, type));
    } else {
      memory.emplace_back(bytes, std::byte{0xff});
    }
  }
  return memory;
}

std::vector<runtime::Operand> KernelCase::operands(DType dtype,
                                                   const std::vector<std::byte*>& data) const {
  std::vector<runtime::Operand> result;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::size_t at = parts_[i].alias.value_or(i);
    const Part& part = parts_[at];
    runtime::Operand operand;
    if (part.is != Part::Is::none) operand.data = data[at];
    operand.elements = Elements::of(part.count);
    operand.dtype = dtype_of(part, dtype);
    result.push_back(operand);
  }
  return result;
}

KernelCase::Memory KernelCase::on_cpu(DType dtype, Memory memory) const {
  std::vector<std::byte*> data;
  for (std::vector<std::byte>& bytes : memory) data.push_back(bytes.data());
  const std::unique_ptr<runtime::Kernels> kernels =
      runtime::cpu_kernels(static_cast<int>(std::thread::hardware_concurrency()));
  kernels->run(call_, operands(dtype, data));
  return memory;
}

KernelCase::Memory KernelCase::on_device(DType dtype, const Memory& memory) const {
  KernelDevice& device = kernel_device();
  std::vector<std::byte*> data;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto element = static_cast<std::size_t>(width(dtype_of(parts_[i], dtype)));
    data.push_back(device.allocate(memory[i].size(), parts_[i].misaligned ? element : 0));
    device.upload(data.back(), memory[i]);
  }
  device.kernels().run(call_, operands(dtype, data));
  Memory result;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    result.push_back(device.download(data[i], memory[i].size()));
  }
  const std::string wrong = device.release();
  INFO(wrong);
  CHECK(wrong.empty());
  return result;
}

void KernelCase::compare(std::size_t operand,
                         DType dtype,
                         const Memory& cpu,
                         const Memory& device,
                         Tolerance tolerance) const {
  const DType type = dtype_of(parts_[operand], dtype);
  const std::vector<float> expected = floats_of(cpu[operand], type);
  const std::vector<float> got = floats_of(device[operand], type);
  if (parts_[operand].exact) {
    CHECK(cpu[operand] == device[operand]);
    return;
  }
  double largest = 0.0;
  for (const float value : expected) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(static_cast<double>(value)));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto want = static_cast<double>(expected[i]);
    const auto have = static_cast<double>(got[i]);
    if (std::isnan(want) && std::isnan(have)) continue;  // not written by either
    const double between = tolerance.product_rounded ? 0.5 * step(type) : 0.0;
    const double allowed =
        step(type) * std::abs(want) + (between + tolerance.inner) * largest + tolerance.absolute;
    INFO("element " << i << ": CPU " << want << ", device " << have << ", allowed " << allowed);
    if (std::abs(want - have) <= allowed) continue;
    CHECK(want == have);
    return;  // one is enough
  }
}

void KernelCase::check(DType dtype, Tolerance tolerance) {
  const Memory memory = inputs(dtype);
  const Memory cpu = on_cpu(dtype, memory);
  Memory first;
  for (int order = 0; order < kernel_device().orders(); ++order) {
    INFO(name(call_.kernel) << " in " << name(dtype) << ", order " << order);
    kernel_device().set_order(order);
    const Memory device = on_device(dtype, memory);
    if (order == 0) {
      first = device;
      for (std::size_t i = 0; i < parts_.size(); ++i) {
        INFO("operand " << i);
        if (parts_[i].written) {
          compare(i, dtype, cpu, device, tolerance);
        } else {
          CHECK(device[i] == memory[i]);
        }
      }
    }
    CHECK((device == first));  // to the bit
  }
}

void KernelCase::check_all(Tolerance tolerance) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) check(dtype, tolerance);
}

std::vector<float> KernelCase::cpu_result(DType dtype, std::size_t operand) {
  const Memory memory = on_cpu(dtype, inputs(dtype));
  return floats_of(memory[operand], dtype_of(parts_[operand], dtype));
}

}  // namespace zeroplan::testing
