// Attention on the device against the CPU's: by threads in fp32, by tensor cores in bf16 and fp16.
#include <cmath>

#include "tests/catch.hpp"
#include "tests/cuda_kernels/kernel_case.hpp"

namespace zeroplan::testing {
namespace {

struct Shape {
  std::int64_t batch, sequence, heads, kv_heads, head_dim;
  bool causal = true, alibi = false, fused = false;
  double scale = 0.0;  // 1 / sqrt(head_dim)
};

KernelCall call_of(const Shape& shape) {
  KernelCall call;
  call.batch = shape.batch;
  call.sequence = shape.sequence;
  call.rows = shape.batch * shape.sequence;
  call.heads = shape.heads;
  call.kv_heads = shape.kv_heads;
  call.head_dim = shape.head_dim;
  call.scale =
      shape.scale != 0.0 ? shape.scale : 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  call.causal = shape.causal;
  call.alibi = shape.alibi;
  if (shape.fused) {  // {heads, 3, head_dim}, as BLOOM's
    call.layout.head_stride = 3 * shape.head_dim;
    call.layout.row_stride = shape.heads * call.layout.head_stride;
    call.layout.offset = {0, shape.head_dim, 2 * shape.head_dim};
  }
  return call;
}

// What tensor cores round more than the CPU: probabilities and their gradients, to the format
// before they are multiplied. Half a step each, relative to the largest result: the format's step.
Tolerance tolerance(const Shape& shape, DType dtype) {
  Tolerance sums = sum_of(4 * shape.sequence + shape.head_dim);
  // Gradients of scores are differences of sums over head_dim, of products below 1; with one key
  // they are the error of these sums.
  sums.absolute = sum_of(shape.head_dim).inner;
  // An error of a score is a probability's relative one: gamma times the magnitudes, all below 1.
  sums.inner +=
      std::abs(shape.scale) * static_cast<double>(shape.head_dim) * sum_of(shape.head_dim).inner;
  if (dtype == DType::fp32 || shape.head_dim > 128) return sums;
  sums.inner += dtype == DType::bf16 ? 0x1p-7 : 0x1p-10;
  return sums;
}

// docs/gpu.md, "Attention"
bool for_library(const Shape& shape, DType dtype, bool misaligned) {
  return dtype != DType::fp32 && !shape.alibi && !misaligned && shape.head_dim <= 128 &&
         shape.head_dim % 8 == 0 && shape.scale >= 0.0;
}

const char* name_of_way(int way) {
  constexpr const char* kNames[] = {
      "own kernels", "the library, sums in one order", "the library, as it likes"};
  return kNames[way];
}

std::string by_last_library;  // what was said of the last check's way 2

void check(const Shape& shape, DType dtype, bool misaligned = false) {
  INFO("sequence " << shape.sequence << ", heads " << shape.heads << "/" << shape.kv_heads
                   << ", head_dim " << shape.head_dim << ", causal " << shape.causal << ", ALiBi "
                   << shape.alibi << ", fused " << shape.fused);
  const KernelCall call = call_of(shape);
  const std::int64_t out = call.rows * shape.heads * shape.head_dim;
  const std::int64_t q = shape.fused ? call.rows * call.layout.row_stride : out;
  const std::int64_t k = shape.fused ? q : call.rows * shape.kv_heads * shape.head_dim;
  const std::int64_t statistic = call.rows * shape.heads;
  const std::vector<float> keys = noise(k, 21);
  const std::vector<float> queries = shape.fused ? keys : noise(q, 20);
  const std::vector<float> values = shape.fused ? keys : noise(k, 22);
  KernelCase forward(Kernel::attention_forward, call);
  forward.out(out).out_fp32(statistic).in(q).fill(2, queries);
  if (shape.fused) {
    forward.same_as(2).same_as(2);
  } else {
    forward.in(k).in(k).fill(3, keys).fill(4, values);
  }
  KernelCase backward(Kernel::attention_backward, call);
  if (shape.fused) {
    backward.out(q).same_as(0).same_as(0);
  } else {
    backward.out(q).out(k).out(k);
  }
  backward.out_fp32(statistic).in(out).in(out).in_fp32(forward.cpu_result(dtype, 1)).in(q);
  backward.fill(5, forward.cpu_result(dtype, 0)).fill(7, queries);
  if (shape.fused) {
    backward.same_as(7).same_as(7);
  } else {
    backward.in(k).in(k).fill(8, keys).fill(9, values);
  }
  if (misaligned) {
    forward.misaligned();
    backward.misaligned();
  }
  for (int way = kernel_device().ways() - 1; way >= 0; --way) {
    INFO("attention by " << name_of_way(way));
    kernel_device().set_way(way);
    runtime::cuda::forget_attention_by();
    forward.check(dtype, tolerance(shape, dtype));
    backward.check(dtype, tolerance(shape, dtype));
    if (way == 0 || !kernel_device().has_library() || !for_library(shape, dtype, misaligned)) {
      continue;
    }
    const std::string by = runtime::cuda::attention_by();
    if (way == 2) by_last_library = by;
    CHECK_THAT(by, Catch::StartsWith("forward: cuDNN ") && Catch::Contains("backward: cuDNN "));
    CHECK_THAT(by, !Catch::Contains("own kernels"));
    if (way == 1) CHECK_THAT(by, !Catch::Contains("any order"));
  }
}

TEST_CASE("Attention in fp32") {
  check({1, 1, 1, 1, 1}, DType::fp32);
  check({2, 33, 2, 1, 40}, DType::fp32);
  check({1, 70, 3, 3, 64, false}, DType::fp32);
  check({1, 45, 6, 2, 80, true, true}, DType::fp32);
  check({2, 40, 3, 3, 16, true, true, true}, DType::fp32);
  check({1, 37, 1, 1, 200}, DType::fp32, true);
}

TEST_CASE("Attention by tensor cores") {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    check({1, 1, 1, 1, 64}, dtype);
    check({1, 130, 2, 1, 64}, dtype);
    check({1, 70, 1, 1, 80, false}, dtype);
    check({2, 64, 3, 3, 16, true, true, true}, dtype);
  }
  check({1, 65, 4, 2, 96, true, true}, DType::bf16);
  check({1, 100, 2, 2, 128}, DType::bf16);
  check({1, 67, 1, 1, 128, false}, DType::fp16);
}

// Sequences past several tiles of rows and of what they go through: tiles that are whole, at the
// diagonal, past it, at the end; three heads that share keys.
TEST_CASE("Attention by tensor cores over many tiles") {
  check({1, 300, 3, 1, 64}, DType::bf16);
  check({1, 200, 1, 1, 64, false}, DType::fp16);
  check({1, 192, 2, 2, 64, true, true}, DType::fp16);
  check({1, 210, 2, 1, 128}, DType::fp16);
  check({2, 192, 1, 1, 128, false}, DType::bf16);
  check({1, 150, 1, 1, 80}, DType::bf16);
  check({1, 161, 1, 1, 96, false, true}, DType::fp16);
}

TEST_CASE("Attention by tensor cores whose scale is not above zero") {
  check({1, 140, 1, 1, 64, true, false, false, -0.25}, DType::bf16);
}

TEST_CASE("Attention by tensor cores whose rows are no packs") {
  check({1, 140, 1, 1, 44}, DType::bf16);
  check({1, 65, 2, 2, 36}, DType::bf16);
  check({1, 33, 1, 1, 64, false}, DType::fp16, true);
}

TEST_CASE("Attention whose softmax picks few keys out of scores in the tens") {
  const Shape shape{1, 70, 2, 1, 64, true, false, false, 4.0};
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) check(shape, dtype);
}

TEST_CASE("Attention of 16-bit heads too large for the tensor cores' kernels") {
  check({1, 35, 2, 1, 144}, DType::bf16);
}

// 160 MiB of gradients of scores: two parts of ten heads with sums in one order, one with sums in
// any. Too much work for emulated threads.
TEST_CASE("Attention whose backward the library computes in parts") {
  if (kernel_device().ways() == 1) {
    WARN("skipped: this device has one way to compute attention");
    return;
  }
  check({1, 2048, 20, 20, 16}, DType::bf16);
  if (kernel_device().has_library()) {
    CHECK_THAT(by_last_library, Catch::Contains("backward: cuDNN") && Catch::Contains("any order"));
  }
}

TEST_CASE("Who computed attention is said, until it is forgotten") {
  check({1, 64, 1, 1, 64}, DType::bf16);
  CHECK_THAT(runtime::cuda::attention_by(), Catch::Contains("forward: own kernels"));
  CHECK_THAT(runtime::cuda::attention_by(), Catch::Contains("backward: own kernels"));
  runtime::cuda::forget_attention_by();
  CHECK(runtime::cuda::attention_by().empty());
}

}  // namespace
}  // namespace zeroplan::testing
