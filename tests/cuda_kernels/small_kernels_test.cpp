// Elementwise operations, norms, tables and the loss on the device against the CPU's.
#include <array>

#include "tests/catch.hpp"
#include "tests/cuda_kernels/kernel_case.hpp"

namespace zeroplan::testing {
namespace {

KernelCall sized(std::int64_t rows, std::int64_t columns) {
  KernelCall call;
  call.rows = rows;
  call.columns = columns;
  return call;
}

// Rows and columns: one row, one element, odd sizes, whole packs, more than one turn of a grid.
using Size = std::array<std::int64_t, 2>;
constexpr std::array<Size, 6> kSizes{{{1, 1}, {1, 37}, {3, 8}, {5, 264}, {7, 131}, {33, 768}}};

TEST_CASE("Elementwise operations") {
  for (const auto& [rows, columns] : kSizes) {
    const std::int64_t n = rows * columns;
    for (const bool exact : {false, true}) {
      KernelCall call = sized(rows, columns);
      call.exact_gelu = exact;
      // A cube and a function of it: the argument's error counts a few times over.
      KernelCase(Kernel::gelu_forward, call).out(n).in(n, 4.0F).check_all(sum_of(8));
      KernelCase(Kernel::gelu_backward, call).out(n).in(n).in(n, 4.0F).check_all(sum_of(16));
      KernelCase(Kernel::gelu_backward, call)
          .same_as(2)
          .in(n)
          .update(n, 4.0F)
          .check_all(sum_of(16));
    }
    const KernelCall call = sized(rows, columns);
    KernelCase(Kernel::swiglu_forward, call).out(n).in(n, 4.0F).in(n).check_all(sum_of(4));
    KernelCase(Kernel::swiglu_backward, call)
        .out(n)
        .out(n)
        .in(n)
        .in(n, 4.0F)
        .in(n)
        .check_all(sum_of(8));
    KernelCase(Kernel::swiglu_backward, call)
        .same_as(3)
        .same_as(4)
        .in(n)
        .update(n, 4.0F)
        .update(n)
        .check_all(sum_of(8));
    KernelCase(Kernel::tanh_forward, call).out(n).in(n, 3.0F).check_all(sum_of(4));
    KernelCase(Kernel::tanh_backward, call).same_as(1).update(n).in(n).check_all(sum_of(4));
    KernelCase(Kernel::add, call).out(n).in(n).in(n).exact(0).check_all({});
    KernelCase(Kernel::add, call).same_as(1).update(n).in(n).exact(1).misaligned().check_all({});
  }
}

TEST_CASE("Norms") {
  for (const auto& [rows, columns] : kSizes) {
    const std::int64_t n = rows * columns;
    for (const bool misaligned : {false, true}) {
      KernelCall call = sized(rows, columns);
      call.epsilon = 1e-5;
      KernelCase rms(Kernel::rms_norm_forward, call);
      rms.out(n).out_fp32(rows).in(n, 1.0F, 0.5F).in(columns, 0.5F, 1.0F);
      KernelCase layer(Kernel::layer_norm_forward, call);
      layer.out(n)
          .out_fp32(rows)
          .out_fp32(rows)
          .in(n, 1.0F, 0.5F)
          .in(columns, 0.5F, 1.0F)
          .in(columns);
      if (misaligned) {
        rms.misaligned();
        layer.misaligned();
      }
      rms.check_all(sum_of(columns));
      // One column: all is 0 but for the error of the mean, times 1 / sqrt(epsilon).
      layer.check_all(columns == 1 ? Tolerance{1e-3} : sum_of(columns));
    }
  }
}

TEST_CASE("Gradients of norms") {
  for (const auto& [rows, columns] : {Size{1, 37}, Size{5, 264}, Size{300, 40}, Size{7, 131}}) {
    const std::int64_t n = rows * columns;
    for (const bool accumulate : {false, true}) {
      KernelCall call = sized(rows, columns);
      call.accumulate = accumulate;
      KernelCase rms(Kernel::rms_norm_backward, call);
      (accumulate ? rms.update(n) : rms.out(n))
          .out(columns)
          .in(n)
          .in(n)
          .in_fp32(rows, 0.5F, 1.5F)
          .in(columns, 0.5F, 1.0F);
      rms.check_all(sum_of(columns + rows));
      KernelCase layer(Kernel::layer_norm_backward, call);
      (accumulate ? layer.update(n) : layer.out(n))
          .out(columns)
          .out(columns)
          .in(n)
          .in(n)
          .in_fp32(rows)
          .in_fp32(rows, 0.5F, 1.5F)
          .in(columns, 0.5F, 1.0F);
      if (accumulate) layer.misaligned();
      layer.check_all(sum_of(columns + rows));
    }
  }
}

TEST_CASE("Norms of rows whose weight gradients do not fit shared memory") {
  const std::int64_t rows = 3;
  const std::int64_t columns = 12000;
  KernelCall call = sized(rows, columns);
  KernelCase(Kernel::layer_norm_backward, call)
      .out(rows * columns)
      .out(columns)
      .out(columns)
      .in(rows * columns)
      .in(rows * columns)
      .in_fp32(rows)
      .in_fp32(rows, 0.5F, 1.5F)
      .in(columns, 0.5F, 1.0F)
      .check(DType::bf16, sum_of(columns));
}

std::vector<std::int64_t> tokens(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int64_t> ids;
  // Some ids often, most never; neighbours the same now and then.
  for (std::int64_t i = 0; i < count; ++i) ids.push_back((i * i / 3) % 7 * (i % 11) % vocabulary);
  return ids;
}

TEST_CASE("Tables, to the bit") {
  for (const auto& [rows, columns] : {Size{1, 1}, Size{5, 264}, Size{600, 40}, Size{37, 13}}) {
    const std::int64_t vocabulary = 61;
    KernelCall call = sized(rows, columns);
    call.inner = vocabulary;
    const std::int64_t table = vocabulary * columns;
    const std::int64_t n = rows * columns;
    const std::vector<std::int64_t> ids = tokens(rows, vocabulary);
    KernelCase(Kernel::embedding_forward, call).out(n).ids(ids).in(table).exact(0).check_all({});
    KernelCase(Kernel::embedding_backward, call).out(table).ids(ids).in(n).exact(0).check_all({});
    call.accumulate = true;
    KernelCase(Kernel::embedding_backward, call)
        .update(table)
        .ids(ids)
        .in(n)
        .exact(0)
        .misaligned()
        .check_all({});
  }
}

TEST_CASE("Positions, to the bit") {
  for (const std::int64_t columns : {1, 13, 264}) {
    KernelCall call = sized(57, columns);
    call.batch = 3;
    call.sequence = 19;
    call.inner = 32;
    const std::int64_t n = call.rows * columns;
    const std::int64_t table = call.inner * columns;
    KernelCase(Kernel::position_forward, call).update(n).in(table).exact(0).check_all({});
    KernelCase(Kernel::position_backward, call).out(table).in(n).exact(0).check_all({});
    call.accumulate = true;
    KernelCase(Kernel::position_backward, call).update(table).in(n).exact(0).check_all({});
  }
}

TEST_CASE("Rotary positions") {
  for (const std::int64_t head_dim : {2, 64, 80, 256}) {
    for (const Kernel kernel : {Kernel::rotary_forward, Kernel::rotary_backward}) {
      KernelCall call;
      call.batch = 2;
      call.sequence = 21;
      call.rows = 42;
      call.heads = 3;
      call.kv_heads = 1;
      call.head_dim = head_dim;
      call.rotary_base = 10000.0;
      KernelCase(kernel, call)
          .update(call.rows * 3 * head_dim)
          .update(call.rows * head_dim)
          .check_all(sum_of(4));
    }
  }
}

std::vector<std::int64_t> labels(std::int64_t rows, std::int64_t vocabulary, bool all_masked) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < rows; ++i) {
    result.push_back(all_masked || i % 5 == 3 ? -100 : (i * 7919) % vocabulary);
  }
  return result;
}

TEST_CASE("Cross entropy") {
  for (const auto& [rows, columns] : {Size{1, 1}, Size{9, 37}, Size{300, 8}, Size{3, 50257}}) {
    const std::int64_t n = rows * columns;
    for (const bool all_masked : {false, true}) {
      if (all_masked && columns != 37) continue;
      KernelCall call = sized(rows, columns);
      const std::vector<std::int64_t> at = labels(rows, columns, all_masked);
      KernelCase forward(Kernel::cross_entropy_forward, call);
      forward.out_fp32(1).out_fp32(rows).in(n, 6.0F).ids(at);
      forward.check_all(sum_of(columns));
      call.scale = 128.0;
      for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
        // The same logits: noise is drawn by the operand's place, so they are handed over.
        const std::vector<float> logits = noise(n, 5, 6.0F);
        KernelCase lse(Kernel::cross_entropy_forward, sized(rows, columns));
        lse.out_fp32(1).out_fp32(rows).in(n).ids(at).fill(2, logits);
        const std::vector<float> sums = lse.cpu_result(dtype, 1);
        KernelCase(Kernel::cross_entropy_backward, call)
            .out(n)
            .in(n)
            .in_fp32(sums)
            .ids(at)
            .fill(1, logits)
            .check(dtype, sum_of(16));
        KernelCase(Kernel::cross_entropy_backward, call)
            .same_as(1)
            .update(n)
            .in_fp32(sums)
            .ids(at)
            .fill(1, logits)
            .misaligned()
            .check(dtype, sum_of(16));
      }
    }
  }
}

// Some rows of a larger loss: the mean is over all labels, the part is added to what earlier chunks
// left.
TEST_CASE("Cross entropy of a chunk") {
  constexpr std::int64_t kAll = 700;
  for (const auto& [rows, columns] : {Size{1, 37}, Size{9, 37}, Size{300, 8}}) {
    const std::int64_t n = rows * columns;
    const std::vector<float> logits = noise(n, 5, 6.0F);
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{13}, kAll - rows}) {
      KernelCall call = sized(rows, columns);
      call.chunk = {first, kAll};
      const std::vector<std::int64_t> at = labels(kAll, columns, false);
      const std::vector<std::int64_t> masked = labels(kAll, columns, true);
      for (const std::vector<std::int64_t>& all : {at, masked}) {
        call.accumulate = first > 0;
        KernelCase forward(Kernel::cross_entropy_forward, call);
        if (call.accumulate) {
          forward.in_fp32(1, 4.0F, 4.0F).written();
        } else {
          forward.out_fp32(1);
        }
        forward.out_fp32(rows).in(n).ids(all).fill(2, logits);
        forward.check_all(sum_of(columns));
        call.accumulate = false;
        for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
          KernelCase(Kernel::cross_entropy_backward, call)
              .same_as(1)
              .update(n)
              .in_fp32(forward.cpu_result(dtype, 1))
              .ids(all)
              .fill(1, logits)
              .check(dtype, sum_of(16));
        }
      }
    }
  }
}

}  // namespace
}  // namespace zeroplan::testing
