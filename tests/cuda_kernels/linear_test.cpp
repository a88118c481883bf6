// Linear layers: which product is asked for, and the sums of the bias's gradient.
#include <array>

#include "runtime/cuda/kernels/gemm.hpp"
#include "tests/catch.hpp"
#include "tests/cuda_kernels/kernel_case.hpp"

namespace zeroplan::testing {
namespace {

struct Size {
  std::int64_t rows, columns, inner;
};

TEST_CASE("Linear layers, weights either way round, adding and not") {
  for (const Size& size : {Size{1, 1, 1}, Size{5, 7, 3}, Size{17, 40, 24}, Size{33, 9, 70}}) {
    for (const bool transposed : {false, true}) {
      for (const bool accumulate : {false, true}) {
        KernelCall call;
        call.rows = size.rows;
        call.columns = size.columns;
        call.inner = size.inner;
        call.transposed = transposed;
        call.accumulate = accumulate;
        const std::int64_t x = size.rows * size.inner;
        const std::int64_t y = size.rows * size.columns;
        const std::int64_t weight = size.columns * size.inner;
        const auto target = [&](Kernel kernel, std::int64_t count) {
          KernelCase result(kernel, call);
          if (accumulate) return result.update(count);
          return result.out(count);
        };
        // cuBLASLt 13.1 on an H200 does so before it adds a bias, or what is there, in shapes
        // that its tensor cores' kernels do not take.
        const auto added = [&](std::int64_t terms, bool with_bias) {
          Tolerance tolerance = sum_of(terms);
          tolerance.product_rounded = kernel_device().has_library() && (with_bias || accumulate);
          return tolerance;
        };
        target(Kernel::linear_forward, y)
            .in(x)
            .in(weight)
            .in(size.columns)
            .check_all(added(size.inner, true));
        target(Kernel::linear_forward, y)
            .in(x)
            .in(weight)
            .none()
            .check_all(added(size.inner, false));
        target(Kernel::linear_backward_input, x)
            .in(y)
            .in(weight)
            .check_all(added(size.columns, false));
        target(Kernel::linear_backward_weight, weight)
            .in(y)
            .in(x)
            .misaligned()
            .check_all(sum_of(size.rows));
        target(Kernel::linear_backward_bias, size.columns).in(y).check_all(sum_of(size.rows));
      }
    }
  }
}

// Of one shape, so that what was chosen for the first would do for the second.
TEST_CASE("A bias that begins where vectors do, then anywhere") {
  KernelCall call;
  call.rows = 24;
  call.columns = 64;
  call.inner = 32;
  const auto product = [&] {
    KernelCase made(Kernel::linear_forward, call);
    made.out(call.rows * call.columns).in(call.rows * call.inner).in(call.columns * call.inner);
    return made.in(call.columns);
  };
  product().check_all(sum_of(call.inner));
  product().misaligned(3).check_all(sum_of(call.inner));
}

TEST_CASE("The bias's gradient over many rows and columns") {
  for (const auto& [rows, columns] :
       {std::array<std::int64_t, 2>{1000, 3}, {257, 300}, {1, 1}, {3, 513}}) {
    KernelCall call;
    call.rows = rows;
    call.columns = columns;
    KernelCase(Kernel::linear_backward_bias, call)
        .out(columns)
        .in(rows * columns)
        .check_all(sum_of(rows));
  }
}

TEST_CASE("A row-major product as BLAS is asked for it") {
  using runtime::cuda::GemmCall;
  const std::byte memory[3]{};
  std::byte out{};
  // y[5, 7] = x[5, 3] w[7, 3]^T: column-major y^T[7, 5] = w^T x^T.
  const GemmCall call = runtime::cuda::gemm_of({.c = &out,
                                                .left = {memory, false},
                                                .right = {memory + 1, true},
                                                .rows = 5,
                                                .columns = 7,
                                                .inner = 3,
                                                .bias = memory + 2});
  CHECK(call.m == 7);
  CHECK(call.n == 5);
  CHECK(call.k == 3);
  CHECK(call.transpose_a);
  CHECK_FALSE(call.transpose_b);
  CHECK(call.lda == 3);
  CHECK(call.ldb == 3);
  CHECK(call.ldc == 7);
  CHECK(call.a == memory + 1);
  CHECK(call.b == memory);
  CHECK(call.bias == memory + 2);
}

}  // namespace
}  // namespace zeroplan::testing
