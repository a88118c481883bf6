// What an operation of the embedded runtime computes, as data: kernel, operands, sizes. A block of
// a PyTorch graph has operations without calls; a block of the embedded runtime has one call for
// each operation (Block::calls, the same index). The simulator prices the operation, the runtime
// executes the call: forward and backward are written down once (implementations/embedded_*.cpp).
//
// Tensors are row-major, and dense but for the heads of a fused projection (HeadLayout). Symbols: B
// micro-batch, S sequence, T = B S tokens, H hidden, A heads, K key/value heads, D head dimension,
// F feed-forward width, V vocabulary. Weights are as torch holds them: {out_features, in_features};
// of GPT-2's Conv1D {in_features, out_features} (KernelCall::transposed).
//
// An output may share its memory with an input where the kernel says "may be": the same storage
// stands in both places.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace zeroplan {

// Operands are listed in the order in which a call gives them; "+=" adds to what is there, which
// "(+= if accumulate)" does where KernelCall::accumulate is set.
enum class Kernel : std::uint8_t {
  none,
  embedding_forward,       // out[T,H], ids[T], table[V,H]
  embedding_backward,      // d_table[V,H] (+= if accumulate), ids[T], d_out[T,H]
  position_forward,        // x[T,H] += table[row % S], table[P,H]
  position_backward,       // d_table[P,H] (+= if accumulate), d_x[T,H]
  rms_norm_forward,        // y[T,H], rstd[T] (fp32), x[T,H], weight[H]
  rms_norm_backward,       // d_x[T,H] (+= if accumulate), d_weight[H], d_y, x, rstd, weight
  layer_norm_forward,      // y[T,H], mean[T], rstd[T] (fp32), x, weight, bias
  layer_norm_backward,     // d_x (+= if accumulate), d_weight, d_bias, d_y, x, mean, rstd, weight
  linear_forward,          // y[T,n] (+= if accumulate), x[T,k], weight[n,k], bias[n] or none
  linear_backward_input,   // d_x[T,k] (+= if accumulate), d_y[T,n], weight[n,k]
  linear_backward_weight,  // d_weight[n,k] (+= if accumulate), d_y[T,n], x[T,k]
  linear_backward_bias,    // d_bias[n] (+= if accumulate), d_y[T,n]
  rotary_forward,          // q[T,A,D], k[T,K,D], both in place
  rotary_backward,         // d_q, d_k, both in place
  attention_forward,       // out[T,A,D], lse[B,A,S] (fp32), q[T,A,D], k[T,K,D], v[T,K,D]
  attention_backward,      // d_q, d_k, d_v, delta[B,A,S] (fp32 workspace), d_out, out, lse, q, k, v
  swiglu_forward,          // y[T,F], gate[T,F], up[T,F]
  swiglu_backward,         // d_gate (may be gate), d_up (may be up), d_y, gate, up
  gelu_forward,            // y[T,F], x[T,F]
  gelu_backward,           // d_x (may be x or d_y), d_y, x
  tanh_forward,            // y, x
  tanh_backward,           // d_x (may be y or d_y), d_y, y
  add,                     // y (may be a or b), a, b
  cross_entropy_forward,   // loss[1] (fp32, += if accumulate): the rows' part of the mean over
                           // labels
                           // >= 0; lse[T] (fp32), logits[T,V], labels[all of KernelCall::Chunk]
  cross_entropy_backward,  // d_logits (may be logits), logits, lse, labels
};
inline constexpr std::array<std::string_view, 26> kKernelNames = {"none",
                                                                  "embedding_forward",
                                                                  "embedding_backward",
                                                                  "position_forward",
                                                                  "position_backward",
                                                                  "rms_norm_forward",
                                                                  "rms_norm_backward",
                                                                  "layer_norm_forward",
                                                                  "layer_norm_backward",
                                                                  "linear_forward",
                                                                  "linear_backward_input",
                                                                  "linear_backward_weight",
                                                                  "linear_backward_bias",
                                                                  "rotary_forward",
                                                                  "rotary_backward",
                                                                  "attention_forward",
                                                                  "attention_backward",
                                                                  "swiglu_forward",
                                                                  "swiglu_backward",
                                                                  "gelu_forward",
                                                                  "gelu_backward",
                                                                  "tanh_forward",
                                                                  "tanh_backward",
                                                                  "add",
                                                                  "cross_entropy_forward",
                                                                  "cross_entropy_backward"};
constexpr std::string_view name(Kernel kernel) {
  return kKernelNames[static_cast<std::size_t>(kernel)];
}

// Where an operand's memory comes from.
struct KernelOperand {
  enum class From : std::uint8_t {
    none,       // this call goes without it
    storage,    // index into Block::storages
    parameter,  // index into Block::parameters: the weight, gathered by the engine
    gradient,   // index into Block::parameters: where its gradient is put (a storage of the block,
                // or the part an earlier block began: tied weights)
    ids,        // the batch's token ids, int64
    labels,     // its labels, int64, shifted already; negative: no loss
  };
  From from = From::none;
  std::int32_t index = -1;
  // A range of its elements, of a storage that is used by rows: `count` from `first` on; count 0:
  // all of it.
  std::int64_t first = 0, count = 0;
};

// Where queries, keys and values stand when one projection makes all three: element (row, head, d)
// of query, key and value i is at i-th offset + row * row_stride + head * head_stride + d, in
// operands that are the whole storage {T, row_stride}. All zero: three dense tensors.
struct HeadLayout {
  std::int64_t row_stride = 0, head_stride = 0;
  std::array<std::int64_t, 3> offset{};  // of query, key, value; the same for their gradients
  bool fused() const { return row_stride != 0; }
};

struct KernelCall {
  // The rows of a cross entropy among those of the loss, which is the mean over all of them: its
  // labels are all, the call's first row has label `first`. all 0: the call's rows are all.
  struct Chunk {
    std::int64_t first = 0, all = 0;
  };

  Kernel kernel = Kernel::none;
  std::vector<KernelOperand> operands;  // in the order of the kernel's comment
  // Sizes, named as above; those that a kernel does not use are 0.
  std::int64_t batch = 0, sequence = 0;
  std::int64_t rows = 0;     // T
  std::int64_t columns = 0;  // H, n, F or V
  std::int64_t inner = 0;    // k of a linear layer, V or P of a table
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  HeadLayout layout;         // of attention's queries, keys and values
  Chunk chunk;               // of cross entropy
  double epsilon = 0.0;      // of norms
  double rotary_base = 0.0;  // theta
  // Of attention scores. Of cross_entropy_backward: the gradient of the loss, 1 in a graph; an
  // engine that scales its loss or accumulates runs the call with its own.
  double scale = 1.0;
  bool causal = false;
  bool alibi = false;
  bool exact_gelu = false;  // erf; else the tanh form
  bool transposed = false;  // a linear layer's weight (and its gradient) is {in, out}
  bool accumulate = false;  // adds to what the first operand holds
};

// How many labels a cross entropy takes its mean over.
constexpr std::int64_t labels_of(const KernelCall& call) {
  return call.chunk.all == 0 ? call.rows : call.chunk.all;
}

// What a kernel does with an operand, and how large it is.
enum class Access : std::uint8_t { read, write, update };  // update: reads and writes
struct OperandUse {
  Access access = Access::read;
  std::int64_t elements = 0;
  enum class Type : std::uint8_t { model, fp32, int64 } type = Type::model;
};

// The operands of a call in its order, absent ones included. Liveness, traffic and the kernels' own
// checks all read this.
std::vector<OperandUse> operand_uses(const KernelCall& call);

}  // namespace zeroplan
