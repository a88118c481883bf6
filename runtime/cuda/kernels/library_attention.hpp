// Attention by a library, where there is one that has a plan for the shape; else this program's own
// kernels compute it (attention.cu). Internal to runtime/cuda.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "model/dtype.hpp"
#include "runtime/cuda/kernels/stream.hpp"

namespace zeroplan::runtime::cuda {

// Where the rows of heads lie, in elements: (row, head, d) at row * row + head * head + d; rows of
// one batch follow the other's.
struct HeadSteps {
  std::int64_t row = 0, head = 0;
  auto operator<=>(const HeadSteps&) const = default;
};

// What a plan depends on. Heads are whole packs of 16 bytes everywhere; statistics are dense.
struct AttentionProblem {
  bool backward = false;
  std::int64_t batch = 1, sequence = 1, heads = 1, kv_heads = 1, head_dim = 64;
  HeadSteps q, k, v, out;  // gradients lie as they do
  double scale = 1.0;
  bool causal = false;
  DType dtype = DType::bf16;  // or fp16
  // The same bits every time. Not: sums of a query's gradient are taken in any order.
  bool ordered = true;
  auto operator<=>(const AttentionProblem&) const = default;
};

// Device memory. Statistics are fp32 {batch, heads, sequence}: lse the natural logarithm of the sum
// of exponentials of scaled scores, delta scratch. Forward leaves out what has d_ and delta.
struct AttentionMemory {
  std::byte *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr, *lse = nullptr;
  std::byte *d_out = nullptr, *d_q = nullptr, *d_k = nullptr, *d_v = nullptr, *delta = nullptr;
};

class LibraryAttention {
 public:
  virtual ~LibraryAttention() = default;
  // On the stream, in its workspace. problem.ordered: has to be; else the library chooses. False
  // where it has no such plan, or could not run it: what it has written, if anything, is no result.
  virtual bool run(const AttentionProblem& problem, const AttentionMemory& memory) = 0;
  // Who did the last problem: "cuDNN 9.19.0", "cuDNN 9.19.0, sums in any order".
  virtual std::string name() const = 0;
  // Why the last problem was not run.
  virtual std::string refusal() const = 0;
};

// What is asked for by the options or, where these leave it, by the environment. Throws InputError.
inline constexpr std::string_view kAttentionVariable = "ZEROPLAN_ATTENTION";
AttentionBy asked_attention(const KernelOptions& options);

// Null where this program has none, or own kernels were asked for. Throws InputError where the
// library was asked for and this program has none, or the environment says something else.
std::unique_ptr<LibraryAttention> make_library_attention(Stream stream,
                                                         const KernelOptions& options);

}  // namespace zeroplan::runtime::cuda
