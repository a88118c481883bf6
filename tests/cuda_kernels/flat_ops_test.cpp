// What the engine does with flat memory, on the device against the CPU's.
#include <cstring>
#include <limits>

#include "runtime/collectives/reduce_kernels.hpp"
#include "runtime/engine/tensor_ops.hpp"
#include "tests/catch.hpp"
#include "tests/cuda_kernels/kernel_case.hpp"

namespace zeroplan::testing {
namespace {

namespace cuda = runtime::cuda;
using Bytes8 = std::vector<std::byte>;

constexpr std::array<DType, 3> kTypes{DType::fp32, DType::bf16, DType::fp16};
constexpr std::array<std::int64_t, 6> kCounts{0, 1, 7, 64, 1003, 5000};

// Runs body in every order on fresh copies of what was put there; the results must agree.
class OnDevice {
 public:
  explicit OnDevice(bool misaligned = false) : misaligned_(misaligned) {}

  template <typename Body>
  Bytes8 run(const std::vector<Bytes8>& inputs, std::size_t result, Body body) const {
    KernelDevice& device = kernel_device();
    Bytes8 first;
    for (int order = 0; order < device.orders(); ++order) {
      device.set_order(order);
      std::vector<std::byte*> data;
      for (const Bytes8& input : inputs) {
        data.push_back(device.allocate(input.size(), misaligned_ ? 8 : 0));
        device.upload(data.back(), input);
      }
      body(data);
      const Bytes8 now = device.download(data[result], inputs[result].size());
      const std::string wrong = device.release();
      INFO(wrong);
      CHECK(wrong.empty());
      if (order == 0) first = now;
      CHECK((now == first));
    }
    return first;
  }

 private:
  bool misaligned_;
};

Bytes8 bytes_of_double(double value) {
  Bytes8 bytes(sizeof(double));
  std::memcpy(bytes.data(), &value, sizeof(double));
  return bytes;
}
double double_of(const Bytes8& bytes) {
  double value = 0.0;
  std::memcpy(&value, bytes.data(), sizeof(double));
  return value;
}

TEST_CASE("Conversions and sums, to the bit") {
  for (const std::int64_t count : kCounts) {
    for (const DType from : kTypes) {
      for (const DType to : kTypes) {
        const Elements elements = Elements::of(count);
        const Bytes8 source = bytes_of(noise(count, 1, 1000.0F), from);
        const Bytes8 target = bytes_of(noise(count, 2, 1000.0F), to);
        cuda::Stream stream = kernel_device().stream();
        for (const double factor : {1.0, 0.37}) {
          Bytes8 expected = target;
          runtime::convert(source.data(), from, expected.data(), to, elements, factor);
          const Bytes8 got = OnDevice(count == 1003).run({source, target}, 1, [&](auto& data) {
            cuda::convert(stream, data[0], from, data[1], to, elements, factor);
          });
          CHECK((got == expected));
        }
        Bytes8 expected = target;
        runtime::add_to(expected.data(), to, source.data(), from, elements);
        const Bytes8 got = OnDevice(count == 1003).run({source, target}, 1, [&](auto& data) {
          cuda::add_to(stream, data[1], to, data[0], from, elements);
        });
        CHECK((got == expected));
      }
    }
  }
}

TEST_CASE("Sums of squares and overflows") {
  cuda::Stream stream = kernel_device().stream();
  for (const DType dtype : kTypes) {
    for (const std::int64_t count : kCounts) {
      const Elements elements = Elements::of(count);
      std::vector<float> values = noise(count, 3, 8.0F);
      const Bytes8 data = bytes_of(values, dtype);
      const double expected = 5.0 + runtime::squares_of(data.data(), dtype, elements);
      const Bytes8 sum = OnDevice(count == 7).run({data, bytes_of_double(5.0)}, 1, [&](auto& at) {
        cuda::add_squares_of(stream, at[0], dtype, elements, reinterpret_cast<double*>(at[1]));
      });
      CHECK(double_of(sum) == Approx(expected).epsilon(1e-14 * static_cast<double>(count + 1)));

      const auto flag_of = [&](double before) {
        const Bytes8 now = bytes_of(values, dtype);
        return double_of(OnDevice().run({now, bytes_of_double(before)}, 1, [&](auto& at) {
          cuda::find_overflow(stream, at[0], dtype, elements, reinterpret_cast<double*>(at[1]));
        }));
      };
      CHECK(flag_of(0.0) == 0.0);
      if (count == 0) continue;
      for (const float bad : {std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
        values.back() = bad;
        CHECK(flag_of(0.0) == 1.0);
        CHECK(flag_of(2.0) == 2.0);
      }
    }
  }
}

TEST_CASE("AdamW, to the bit of the CPU's") {
  runtime::AdamWOptions options;
  options.weight_decay = 0.1;
  for (const std::int64_t count : {1, 7, 1003}) {
    for (const bool misaligned : {false, true}) {
      std::vector<float> w = noise(count, 1);
      std::vector<float> m = noise(count, 2, 0.1F);
      std::vector<float> v = noise(count, 3, 0.1F);
      for (float& value : v) value *= value;
      const std::vector<float> g = noise(count, 4, 64.0F);
      const std::vector<Bytes8> inputs{bytes_of(w, DType::fp32),
                                       bytes_of(m, DType::fp32),
                                       bytes_of(v, DType::fp32),
                                       bytes_of(g, DType::fp32)};
      runtime::adamw({w, m, v, g}, options, 3, 1.0 / 64.0, 1);
      const std::array<std::vector<float>*, 3> expected{&w, &m, &v};
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const Bytes8 got = OnDevice(misaligned).run(inputs, i, [&](auto& at) {
          cuda::adamw(kernel_device().stream(),
                      {at[0], at[1], at[2], at[3], Elements::of(count)},
                      options,
                      3,
                      1.0 / 64.0);
        });
        CHECK((got == bytes_of(*expected[i], DType::fp32)));
      }
      // With the new weights in 16 bits beside them.
      for (const DType dtype : {DType::bf16, DType::fp16}) {
        std::vector<Bytes8> with_copy = inputs;
        with_copy.push_back(bytes_of(noise(count, 5), dtype));
        const auto update = [&](auto& at) {
          cuda::adamw(kernel_device().stream(),
                      {at[0], at[1], at[2], at[3], Elements::of(count), DType::fp32, at[4], dtype},
                      options,
                      3,
                      1.0 / 64.0);
        };
        CHECK((OnDevice(misaligned).run(with_copy, 0, update) == bytes_of(w, DType::fp32)));
        CHECK((OnDevice(misaligned).run(with_copy, 4, update) == bytes_of(w, dtype)));
      }
    }
  }
}

TEST_CASE("AdamW of 16-bit states: each element as the CPU's in fp32, rounded once") {
  const runtime::AdamWOptions options;
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (const std::int64_t count : {1, 7, 1003}) {
      for (const bool misaligned : {false, true}) {
        std::vector<float> v = noise(count, 3, 0.1F);
        for (float& value : v) value *= value;
        std::vector<Bytes8> inputs{bytes_of(noise(count, 1), dtype),
                                   bytes_of(noise(count, 2, 0.1F), dtype),
                                   bytes_of(v, dtype),
                                   bytes_of(noise(count, 4, 64.0F), dtype)};
        std::array<std::vector<float>, 4> read;
        for (std::size_t i = 0; i < read.size(); ++i) read[i] = floats_of(inputs[i], dtype);
        runtime::adamw({read[0], read[1], read[2], read[3]}, options, 3, 1.0 / 64.0, 1);
        inputs.push_back(bytes_of(noise(count, 5), DType::bf16));
        const auto update = [&](auto& at) {
          cuda::adamw(kernel_device().stream(),
                      {at[0], at[1], at[2], at[3], Elements::of(count), dtype, at[4], DType::bf16},
                      options,
                      3,
                      1.0 / 64.0);
        };
        for (std::size_t i = 0; i < 3; ++i) {
          CHECK((OnDevice(misaligned).run(inputs, i, update) == bytes_of(read[i], dtype)));
        }
        CHECK((OnDevice(misaligned).run(inputs, 4, update) == bytes_of(read[0], DType::bf16)));
      }
    }
  }
}

template <typename T>
Bytes8 scaled(const std::vector<float>& values, double factor, double shift) {
  Bytes8 result(values.size() * sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<T>(static_cast<double>(values[i]) * factor + shift);
    std::memcpy(result.data() + i * sizeof(T), &value, sizeof(T));
  }
  return result;
}

Bytes8 numbers(std::int64_t count, DType dtype, std::uint64_t seed) {
  const std::vector<float> values = noise(count, seed);
  if (dtype == DType::fp64) return scaled<double>(values, 1.0 / 3.0, 0.0);
  if (dtype == DType::int64) return scaled<std::int64_t>(values, 1e12, 0.0);
  if (dtype == DType::uint8) return scaled<std::uint8_t>(values, 127.0, 127.0);
  return bytes_of(values, dtype);
}

TEST_CASE("Sums of ranks, to the bit of the collectives'") {
  constexpr std::int64_t kCount = 1003;
  for (const DType dtype :
       {DType::fp32, DType::fp64, DType::bf16, DType::fp16, DType::int64, DType::uint8}) {
    for (const ReduceOperation operation : {ReduceOperation::sum, ReduceOperation::maximum}) {
      if (dtype == DType::uint8 && operation == ReduceOperation::sum) continue;
      for (const int ranks : {1, 3, 8}) {
        std::vector<Bytes8> inputs;
        std::vector<const std::byte*> sources;
        for (int rank = 0; rank < ranks; ++rank) {
          inputs.push_back(numbers(kCount, dtype, static_cast<std::uint64_t>(rank) + 1));
        }
        for (const Bytes8& input : inputs) sources.push_back(input.data());
        Bytes8 expected(inputs[0].size());
        std::byte* out = expected.data();
        runtime::combine(sources, {&out, 1}, kCount, dtype, operation);
        const auto body = [&](std::size_t to) {
          return [&, to](auto& data) {
            cuda::sum_of_ranks(kernel_device().stream(),
                               data.data(),
                               ranks,
                               data[to],
                               dtype,
                               Elements::of(kCount),
                               operation);
          };
        };
        inputs.emplace_back(expected.size());
        const auto apart = static_cast<std::size_t>(ranks);
        CHECK((OnDevice().run(inputs, apart, body(apart)) == expected));
        CHECK((OnDevice(true).run(inputs, 0, body(0)) == expected));  // over an input
      }
    }
  }
}

}  // namespace
}  // namespace zeroplan::testing
