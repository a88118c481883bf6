// What the transformers families have in common: modules with their hooks, attention functions by
// version, and the loss.
//
// Version switches were read in the sources of transformers 4.36, 4.40, 4.44-4.49, 4.51, 4.53-4.57.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "model/graph/aten.hpp"
#include "model/implementations/assembler.hpp"
#include "model/releases.hpp"
#include "model/tensor_ranks.hpp"

namespace zeroplan::hf {

struct Context {
  const Model& model;
  const GraphOptions& options;
  std::int64_t batch = 1, sequence = 0;    // of this rank
  Attention attention = Attention::eager;  // what the class has

  const TransformerShape& shape() const { return model.shape; }
  // Of transformers' release.
  bool acts(ReleaseRule rule) const { return options.transformers_act(rule); }
  // Of products and attention.
  DType compute_dtype() const { return options.autocast.value_or(options.dtype); }
  Shape hidden_shape() const { return Shape{batch, sequence, shape().hidden}; }
};

// --- modules ---
// Whether a layer of that name is there, by itself or as what an adapter wraps.
inline bool has_layer(const Tape& t, std::string_view module) {
  return t.has_parameter(module, "weight") || t.has_parameter(module, "base_layer.weight");
}
Tensor linear(Tape& t, const Context& c, std::string_view module, const Tensor& x);
// A linear layer that AutoTP has cut (hf_tensor_ranks.cpp): `x` and the result are the rank's parts
// as `shard` says.
Tensor cut_linear(
    Tape& t, const Context& c, TensorShard shard, std::string_view module, const Tensor& x);
// An all-reduce among tensor ranks, in place, of so many bytes.
void reduce_among_ranks(Tape& t, Bytes bytes);
// Where the gradient of `x` has been computed, `bytes` are added up over the tensor ranks.
Tensor with_summed_gradient(Tape& t, const Tensor& x, Bytes bytes);
// A head's norm, whose weight is whole on every rank and sees the rank's heads alone.
Tensor with_summed_norm_gradient(Tape& t, const Context& c, const Tensor& normed);
// A linear written x @ weight.T + bias: the sum is an operation of its own.
Tensor matmul_linear(Tape& t, const Context& c, std::string_view module, const Tensor& x);
Tensor conv1d(Tape& t, const Context& c, std::string_view module, const Tensor& x);
Tensor layer_norm(Tape& t, std::string_view module, const Tensor& x);
Tensor rms_norm(Tape& t, std::string_view module, const Tensor& x);
// Olmo2RMSNorm since 4.53: the weight is multiplied before the cast, in fp32.
Tensor rms_norm_weighed_in_fp32(Tape& t, std::string_view module, const Tensor& x);
// GemmaRMSNorm: everything in fp32, times (1 + weight).
Tensor gemma_norm(Tape& t, std::string_view module, const Tensor& x);
Tensor activation(Tape& t, ActivationFunction function, const Tensor& x);
// modeling_bloom.GeLUFunction, a Python autograd function that saves its input.
Tensor bloom_gelu(Tape& t, const Tensor& x);
inline constexpr std::string_view kBloomGelu = "bloom_gelu";  // its name where it was recorded
// nn.Dropout; probability 0 launches nothing.
Tensor dropout(Tape& t, std::string_view module, const Tensor& x, double probability);

// --- attention; q, k, v are (b, heads, s, d), the result (b, s, heads, d) contiguous ---
struct AttentionArguments {
  bool causal = true;
  bool fp32_softmax = true;  // softmax(dtype=float32).to(q.dtype)
  double dropout = 0.0;
  bool softcap = false;  // eager scores / cap, tanh, times cap
  // The mask of this layer, undefined for none; nothing: the one of all layers, where it is needed.
  std::optional<Tensor> mask = {};
};
// The context with eager attention where the class has no SDPA version yet.
Context with_sdpa_where(Context c, ReleaseRule has_sdpa);
// Which kernel F.scaled_dot_product_attention takes (sdp_utils.cpp: flash, mem_efficient, math).
SdpaBackend sdpa_backend(const Context& c, bool mask, std::int64_t head_dim, bool equal_heads);
Tensor repeat_kv(Tape& t, const Tensor& x, std::int64_t heads);
Tensor attention(Tape& t,
                 const Context& c,
                 const Tensor& q,
                 const Tensor& k,
                 const Tensor& v,
                 const AttentionArguments& arguments);
// On ranks that share the sequence (hf_ulysses.cpp): s tokens of all heads in (b, heads, s, d), all
// tokens of some heads through `core`, which gives (b, all tokens, some heads, d), and s tokens of
// all heads out: (b, s, heads, d). One rank: `core` alone.
using AttentionCore = std::function<Tensor(const Tensor& q, const Tensor& k, const Tensor& v)>;
Tensor on_all_tokens(Tape& t,
                     std::int64_t ranks,
                     const Tensor& q,
                     const Tensor& k,
                     const Tensor& v,
                     const AttentionCore& core);
// `attention`, on ranks that share the sequence where there are such.
Tensor ulysses_attention(Tape& t,
                         const Context& c,
                         const Tensor& q,
                         const Tensor& k,
                         const Tensor& v,
                         const AttentionArguments& arguments);
Tensor eager_attention(Tape& t,
                       const Context& c,
                       const Tensor& q,
                       const Tensor& k,
                       const Tensor& v,
                       const AttentionArguments& arguments);
// (b, s, heads * d) -> (b, heads, s, d)
Tensor split_heads(Tape& t, const Tensor& x, std::int64_t heads);
// (b, s, heads, d) -> (b, s, heads * d)
Tensor merge_heads(Tape& t, const Tensor& x);

// --- rotary positions ---
// The tables of the whole sequence, made by the model and shared by its layers.
void share_rotary_tables(Tape& t, const Context& c, Slot cos = Slot::cos, Slot sin = Slot::sin);
struct RotaryTables {
  Tensor cos, sin;
};
// Whether the model computes the tables once (4.45 and later) or every layer its own.
bool shares_rotary_tables(const Context& c);
// Those of a layer, ready to be multiplied with heads: the model's, or its own.
RotaryTables layer_rotary_tables(Tape& t, const Context& c);
RotaryTables shared_rotary_tables(Tape& t, const Context& c, Slot cos, Slot sin);
// Whether tables stay in fp32, and what is turned by them too until it is done (OLMo's since 4.52).
bool turns_in_fp32(const Context& c);
// Tables that every layer of an old release registers as buffers.
void add_rotary_caches(GraphAssembler& assembler, const Context& c);
RotaryTables own_rotary_tables(Tape& t, const Context& c);
Tensor apply_rotary(Tape& t, const Tensor& x, const RotaryTables& tables);
// The first rotary_dim of each head rotated and concatenated with the rest, which may be empty.
Tensor apply_partial_rotary(Tape& t, const Context& c, const Tensor& x, const RotaryTables& tables);

// Cache.update: what use_cache keeps of keys and values until the output object dies.
void update_cache(Tape& t, const Context& c, Tensor& key, Tensor& value);
// The pair that a class without a cache object returns, as long.
void keep_pair(Tape& t, const Context& c, const Tensor& key, const Tensor& value);
inline constexpr std::string_view kUpdateCache = "update_cache";  // its name where it was recorded

// --- embedding and head ---
// Whether the gradient that the head gives to tied embeddings can be added to in place.
bool head_gradient_is_owned(const Context& c);
// Whether embedding and head are one parameter of the rank: stages of a pipeline have one each.
bool is_tied_here(const Context& c);
// The logits that a pipeline's last stage keeps of earlier micro-batches.
void keep_logits(GraphAssembler& assembler, const Context& c);
// enable_input_require_grads: peft's, where a frozen model has checkpoints; since transformers 5.0
// checkpointing itself switches it on.
bool asks_gradients_of_embeddings(const Context& c);
// nn.Embedding of the tokens; the gradient can go up to it where peft asks for that.
Tensor token_embedding(Tape& t, const Context& c, std::string_view module);
// inputs_embeds, a variable of the model's forward() that lives until its layers have run. A
// pipeline's first stage has no such frame.
void hold_embeddings(Tape& t, const Context& c, const Tensor& embeddings);
// Gemma and Gemma 2: inputs_embeds times the normalizer.
Tensor scaled_embeddings(Tape& t, const Context& c, const Tensor& embeddings);
// --- masks ---
// Whether the layers are given a mask tensor.
bool needs_mask(const Context& c);
// transformers' masking_utils: booleans for sdpa, whose call makes numbers of them; numbers to add
// for eager attention. Comparisons of positions, "and" with the batch's mask.
bool made_by_masking_utils(const Context& c);
DType mask_dtype(const Context& c);
Tensor make_mask(Tape& t, const Context& c);
void share_mask(Tape& t, const Context& c, Slot slot = Slot::mask);
Tensor mask(Tape& t, const Context& c, Slot slot = Slot::mask);

// --- loss ---
// Whose code computes the loss of a causal model; docs/model.md names the cases.
// unshifted_in_model: the logits as they are, all positions (the labels come shifted).
// fused_outside: the same by flash-attn's cross entropy, one kernel each way.
enum class LossCode { float_in_model, loss_function, unshifted_in_model, fused_outside };
struct CausalHead {
  std::string_view module;     // of the linear to the vocabulary
  std::string_view embedding;  // whose weight it is where the model ties them
  LossCode code = LossCode::loss_function;
  bool fp32_logits = false;  // the model casts its logits before it calls the loss function
  int training_metrics = 0;  // cross entropies without gradient, under autocast, after backward
};
// The linear to the vocabulary and the loss; with fused_loss, in one operation without logits.
Tensor causal_loss(Tape& t, const Context& c, const CausalHead& head, const Tensor& hidden);
// The last block of a decoder: its final layer norm and causal_loss.
void add_causal_head(GraphAssembler& assembler,
                     const Context& c,
                     const std::string& block,
                     std::string_view final_norm,
                     const CausalHead& head);
// Where the loss of a class is computed that shares the loss function from `shares` on, with
// `before` the code it had.
inline LossCode loss_where(const Context& c, ReleaseRule shares, LossCode before) {
  return c.acts(shares) ? LossCode::loss_function : before;
}

}  // namespace zeroplan::hf
