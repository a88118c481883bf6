// Matrix products as BLAS has them, column-major: what is asked for is data, made by gemm_of from
// row-major products; who computes it is cuBLASLt on a device and a plain loop in the tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "model/dtype.hpp"
#include "runtime/cuda/kernels/stream.hpp"

namespace zeroplan::runtime::cuda {

// c = op(a) op(b) (+ bias down each column) (+ c if accumulate), column-major: op(a) is m x k,
// op(b) k x n, c m x n; a leading dimension is the distance of columns. Sums in fp32.
struct GemmCall {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  const std::byte *a = nullptr, *b = nullptr;
  std::byte* c = nullptr;
  const std::byte* bias = nullptr;  // m elements, or none
  bool accumulate = false;
  DType dtype = DType::fp32;
};

// A row-major matrix, or the transpose of one: rows x columns as the product sees it.
struct RowMajor {
  const std::byte* data = nullptr;
  bool transposed = false;  // in memory {columns, rows}
};

// c[rows, columns] (+)= left[rows, inner] right[inner, columns] (+ bias[columns]), row-major and
// dense. A row-major matrix is its transpose column-major, so c^T = right^T left^T is asked for:
// right comes first, and is transposed for BLAS where it is transposed here.
struct RowMajorProduct {
  std::byte* c = nullptr;
  RowMajor left, right;
  std::int64_t rows = 0, columns = 0, inner = 0;
  const std::byte* bias = nullptr;
  bool accumulate = false;
  DType dtype = DType::fp32;
};
GemmCall gemm_of(const RowMajorProduct& product);

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual void run(const GemmCall& call) = 0;
};

// By cuBLASLt on the stream, or the emulation's (whichever is linked).
std::unique_ptr<Gemm> make_gemm(Stream stream, const KernelOptions& options);

}  // namespace zeroplan::runtime::cuda
