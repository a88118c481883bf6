// Against buffers of PyTorch's own reductions, as rehearsals on emulated A100 (108 multiprocessors)
// and H100 (132) recorded them.
#include "model/graph/reduction_buffer.hpp"

#include "tests/catch.hpp"

namespace zeroplan {
namespace {

constexpr ReductionGpu kA100{108, 2048};

TEST_CASE("sums over rows take what PyTorch's kernel takes") {
  // RMSNorm's weight, 4 x 2048 tokens of 896 (Qwen2.5-0.5B); a bias of 3072 and one of 4096 over
  // 1024 tokens (Bloom-560m).
  CHECK(row_sum_buffer(kA100, 8192, 896, DType::bf16) == Bytes::mib(56));
  CHECK(row_sum_buffer(kA100, 1024, 3072, DType::bf16) == Bytes::mib(24));
  CHECK(row_sum_buffer(kA100, 1024, 4096, DType::bf16) == Bytes::mib(32));
  CHECK(row_sum_buffer(kA100, 2048, 4096, DType::bf16) == Bytes::mib(64));
}

TEST_CASE("few rows are summed by one block, and nothing is taken without a GPU") {
  CHECK(row_sum_buffer(kA100, 64, 4096, DType::bf16) == Bytes::zero());
  CHECK(row_sum_buffer(kA100, 1, 4096, DType::bf16) == Bytes::zero());
  CHECK(row_sum_buffer({}, 8192, 4096, DType::bf16) == Bytes::zero());
}

}  // namespace
}  // namespace zeroplan
