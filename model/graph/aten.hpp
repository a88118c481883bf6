// The ATen operations that transformers' forward passes use, with autograd's formulas, on a Tape.
//
// Each function allocates what the CUDA implementation allocates, launches what it launches, saves
// what derivatives.yaml names, and its formula does the same for backward. Called inside a formula
// they record no node, as under no_grad. Names are PyTorch's. Symbols of the comments: T tokens,
// b batch, s sequence, a heads, h hidden, V vocabulary.
//
// Sources: PyTorch 2.6 tools/autograd/derivatives.yaml, torch/csrc/autograd/FunctionsManual.cpp and
// the files named at each function.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "model/graph/autograd.hpp"
#include "model/quantization.hpp"

namespace zeroplan::aten {

// --- views and copies ---
Tensor view(Tape& t, const Tensor& x, const Shape& sizes);  // must be possible without a copy
Tensor reshape(Tape& t, const Tensor& x, const Shape& sizes);
Tensor transpose(Tape& t, const Tensor& x, int a, int b);
Tensor unsqueeze(Tape& t, const Tensor& x, int d);
Tensor expand(Tape& t, const Tensor& x, const Shape& sizes);
Tensor slice(Tape& t, const Tensor& x, int d, std::int64_t size);
Tensor every_second(Tape& t, const Tensor& x, int d);  // x[..., ::2]
Tensor select(Tape& t, const Tensor& x, int d);
std::vector<Tensor> split(Tape& t, const Tensor& x, const std::vector<std::int64_t>& sizes, int d);
Tensor contiguous(Tape& t, const Tensor& x);
Tensor clone(Tape& t, const Tensor& x);
Tensor to(Tape& t, const Tensor& x, DType dtype);
Tensor cat(Tape& t, const std::vector<const Tensor*>& parts, int d);

// --- elementwise ---
Tensor neg(Tape& t, const Tensor& x);
Tensor scale(Tape& t, const Tensor& x, std::string_view name = "mul");  // by a number: mul, div
Tensor scale_in_place(Tape& t, const Tensor& x, std::string_view name = "mul_");
Tensor shift(Tape& t, const Tensor& x, std::string_view name = "add");  // add or subtract a number
Tensor add(Tape& t, const Tensor& x, const Tensor& y);
Tensor sub(Tape& t, const Tensor& x, const Tensor& y);
Tensor add_in_place(Tape& t, const Tensor& x, const Tensor& y);  // x += y
Tensor clamp(Tape& t, const Tensor& x);  // between two bounds that are numbers
Tensor mul(Tape& t, const Tensor& x, const Tensor& y);
Tensor pow(Tape& t, const Tensor& x, int exponent);
Tensor rsqrt(Tape& t, const Tensor& x);
Tensor tanh(Tape& t, const Tensor& x);
Tensor sigmoid(Tape& t, const Tensor& x);
Tensor relu(Tape& t, const Tensor& x);
Tensor silu(Tape& t, const Tensor& x);
Tensor gelu(Tape& t, const Tensor& x);
Tensor maximum_scalar(Tape& t, const Tensor& x);  // torch.max(x, 0-dimensional tensor)
Tensor masked_fill(Tape& t, const Tensor& x, const Tensor& mask);
Tensor masked_fill_in_place(Tape& t, const Tensor& x, const Tensor& mask);
// probability 0: the input itself, nothing launched
Tensor dropout(Tape& t, const Tensor& x, double probability);

// --- reductions and norms ---
Tensor mean_last(Tape& t, const Tensor& x);   // keepdim
Tensor sum(Tape& t, const Tensor& x, int d);  // over one dimension, which is not kept
Tensor softmax(Tape& t, const Tensor& x, std::optional<DType> dtype = {});
// The guard for rows that are masked whole writes over the softmax (`in_place`) or makes a tensor.
Tensor safe_softmax(Tape& t, const Tensor& x, bool in_place);
Tensor log_softmax(Tape& t, const Tensor& x);
// The labels are saved: undefined where they are the batch's own.
Tensor nll_loss(Tape& t, const Tensor& log_probabilities, const Tensor& labels = Tensor());
Tensor layer_norm(Tape& t, const Tensor& x, const Tensor& weight, const Tensor& bias);

// --- products ---
Tensor mm(Tape& t, const Tensor& a, const Tensor& b);
Tensor addmm(Tape& t, const Tensor& bias, const Tensor& a, const Tensor& b);
Tensor bmm(Tape& t, const Tensor& a, const Tensor& b);
Tensor baddbmm(Tape& t, const Tensor& addend, const Tensor& a, const Tensor& b);
Tensor matmul(Tape& t, const Tensor& a, const Tensor& b);  // 4-dimensional, batched
// torch's _grouped_mm: rows (S, in), sorted by group, by the group's matrix of a weight; `offsets`
// says where each group's rows end.
enum class GroupedProducts {
  one_kernel,  // Hopper and Blackwell of data centres, bf16 (GroupedBlas.cpp _grouped_mm_cuda)
  loop         // elsewhere: the host reads the offsets and launches one product after the other
};
enum class StackLayout { out_in, in_out };  // of the weight: (groups, out, in) or (groups, in, out)
Tensor grouped_mm(Tape& t,
                  const Tensor& rows,
                  const Tensor& weight,
                  const Tensor& offsets,
                  GroupedProducts products,
                  StackLayout layout = StackLayout::out_in);
// F.linear; the bias may be undefined.
Tensor linear(Tape& t, const Tensor& x, const Tensor& weight, const Tensor& bias);
// bitsandbytes' MatMul4Bit: the weight is read from four bits into a tensor of its own, forward and
// again backward (autograd/_functions.py). The weight has no gradient.
Tensor linear_4bit(
    Tape& t, const Tensor& x, const Tensor& weight, const Tensor& bias, const FourBitWeights& how);
// DeepSpeed's LinearFunctionForZeroStage3, which replaces F.linear in stage 3.
Tensor zero3_linear(Tape& t, const Tensor& x, const Tensor& weight, const Tensor& bias);

// --- gathers ---
Tensor embedding(Tape& t, const Shape& indices, const Tensor& weight);
// The same by an index tensor that the model makes: it is saved.
Tensor embedding(Tape& t, const Tensor& indices, const Tensor& weight);

// x[rows] of a (tokens, width) tensor: `rows` of them.
Tensor index_rows(Tape& t, const Tensor& x, std::int64_t rows);
// The same by a tensor of row numbers that the model made: it is saved.
Tensor index_rows(Tape& t, const Tensor& x, const Tensor& index);
// torch.sort of `count` row numbers.
struct Sorted {
  Tensor values, indices;
};
Sorted sort(Tape& t, std::int64_t count);
// x[..., [i], ...] with a list of one number in dimension d: a copy whose size there is 1.
Tensor index_one(Tape& t, const Tensor& x, int d);
// `source`, all of it, in the places of `x` that `mask` says; the mask is spread over x.
Tensor masked_scatter(Tape& t, const Tensor& x, const Tensor& mask, const Tensor& source);
// target.index_add_(0, rows, x), in place.
Tensor index_add(Tape& t, const Tensor& target, const Tensor& x);
// A reduction that selects values (topk, max): those and their indices, both of `shape`; the
// indices are saved.
struct Selected {
  Tensor values, indices;
};
Selected select_last(Tape& t, const Tensor& x, const Shape& shape, std::string_view name);
Tensor topk(Tape& t, const Tensor& x, std::int64_t k);  // the k largest of the last dimension

// --- fused attention; q, k, v are (b, heads, s, d) ---
struct Sdpa {
  SdpaBackend backend = SdpaBackend::flash;
  bool causal = true;
  double dropout = 0.0;
  bool deterministic = false;
  bool enable_gqa = false;      // keys and values of fewer heads, each for a group of queries
  bool math_in_fp32 = true;     // torch >= 2.5: the math backend upcasts 16-bit inputs
  bool guards_in_place = true;  // torch >= 2.6: safe_softmax
};
Tensor scaled_dot_product_attention(Tape& t,
                                    const Tensor& q,
                                    const Tensor& k,
                                    const Tensor& v,
                                    const Tensor& mask,
                                    const Sdpa& options);

// The sum of a gradient over the dimensions that were broadcast, in the input's dtype: what the
// engine does to every gradient before it passes it on (validate_outputs, engine.cpp).
Tensor fit_gradient(Tape& t, const Tensor& gradient, const Shape& shape, DType dtype);
// Bytes a kernel reads of this tensor: expanded dimensions once.
Bytes distinct_bytes(const Tensor& x);

}  // namespace zeroplan::aten
