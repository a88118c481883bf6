// What the embedded runtime's families have in common: each layer as the calls of its forward pass
// and those of its backward pass. A backward function makes the gradients of the layer's weights
// before that of its input, so that what it saved can go.
#pragma once

#include <string_view>

#include "model/implementations/embedded_builder.hpp"
#include "model/implementations/hf_common.hpp"

namespace zeroplan::embedded {

constexpr KernelOperand kNoOperand{};

// --- linear layers; sizes are the weight's ---
// Which layout the weight has: nn.Linear's {out, in} or Conv1D's {in, out}.
enum class WeightLayout { out_in, in_out };
KernelOperand linear(BlockBuilder& b,
                     std::string_view module,
                     KernelOperand x,
                     Keep keep,
                     WeightLayout layout = WeightLayout::out_in);
struct LinearBackward {
  KernelOperand d_y, x;
  KernelOperand d_x = kNoOperand;  // none: a new tensor
  bool accumulate = false;         // onto d_x
  WeightLayout layout = WeightLayout::out_in;
  std::int64_t rows = 0;     // 0: all
  bool add_weights = false;  // onto the weights' gradients
};
// The gradient of x.
KernelOperand linear_backward(BlockBuilder& b, std::string_view module, const LinearBackward& call);

// The same of weights that stand elsewhere, in the module that runs.
struct LinearWeights {
  KernelOperand weight, bias;
};
struct LinearForward {
  KernelOperand y, x;
  WeightLayout layout = WeightLayout::out_in;
  std::int64_t rows = 0;  // 0: all
};
void linear_product(BlockBuilder& b, const LinearWeights& weights, const LinearForward& call);
KernelOperand linear_gradients(BlockBuilder& b,
                               const LinearWeights& weights,
                               const LinearBackward& call);

// --- norms; of the whole hidden state ---
struct Norm {
  KernelOperand y, x, mean, rstd;  // mean: layer norm alone
};
Norm norm(BlockBuilder& b, std::string_view module, KernelOperand x);
// d_x: into `onto`, which it is added to, or into a new tensor.
KernelOperand norm_backward(BlockBuilder& b,
                            std::string_view module,
                            const Norm& saved,
                            KernelOperand d_y,
                            KernelOperand onto = kNoOperand);

// --- attention ---
struct Heads {
  KernelOperand q, k, v;  // one storage three times where a projection makes all
  HeadLayout layout;
};
struct AttentionOutput {
  KernelOperand out, lse;
};
AttentionOutput attention(BlockBuilder& b, const Heads& heads);
// The gradients of q, k and v, in storages like theirs.
Heads attention_backward(BlockBuilder& b,
                         const Heads& heads,
                         const AttentionOutput& saved,
                         KernelOperand d_out);
void rotary(BlockBuilder& b, Kernel kernel, const Heads& heads);

// --- elementwise ---
KernelOperand gelu(BlockBuilder& b, KernelOperand x, std::int64_t columns);
void gelu_backward_in_place(BlockBuilder& b,
                            KernelOperand x,
                            KernelOperand d_y,
                            std::int64_t columns);
// a += b, both of the hidden width.
void add_to(BlockBuilder& b, KernelOperand a, KernelOperand other);

// --- the two ends ---
KernelOperand embedding(BlockBuilder& b, std::string_view module);
// `tied`: the head has begun the table's gradient.
void embedding_backward(BlockBuilder& b, std::string_view module, KernelOperand d_out, bool tied);
// Adds a row of the table for each position (every token the first row: `period` 1).
void add_positions(BlockBuilder& b, std::string_view module, KernelOperand x, std::int64_t period);
void positions_backward(BlockBuilder& b,
                        std::string_view module,
                        KernelOperand d_x,
                        std::int64_t period);

// Logits and their loss; embedded_head.cpp. In the backward pass the logits' gradient takes their
// place; of a fused loss a chunk of it does in the forward pass.
struct Head {
  std::string_view module;          // "lm_head"
  std::string_view tied_embedding;  // whose weight it is where the model ties them
  std::string_view bias;            // of the block; "": the module's own, if any
};
struct HeadForward {
  KernelOperand x, logits, lse;
  KernelOperand d_x;  // of a fused loss, which leaves nothing else to the backward pass
};
HeadForward head_forward(BlockBuilder& b, const Head& head, KernelOperand x);
// The gradient of x. After begin_backward().
KernelOperand head_backward(BlockBuilder& b, const Head& head, const HeadForward& saved);

// --- a layer with its norms before attention and feed-forward, one projection for queries, keys
// and values, and GELU: GPT-2 and BLOOM ---
struct PreNormLayer {
  const char* block;  // "GPT2Block"
  const char *first_norm, *attention, *qkv, *projection, *second_norm, *mlp, *up, *down;
  WeightLayout layout;
  HeadLayout heads;
};
Block pre_norm_layer(BlockBuilder b, const PreNormLayer& names);

// A whole model of such layers, under Hugging Face's names of GPT-2 and BLOOM: transformer.h.N,
// transformer.ln_f, and a head that may be tied to the table of words.
struct PreNormModel {
  const char* inputs;  // names of the first and the last block in the graph
  const char* head;
  std::string_view words;                    // the module of the embedding
  Block (*input_block)(BlockBuilder, bool);  // {T, C}; whether the head is tied
  PreNormLayer layer;
};
void add_pre_norm_model(GraphAssembler& assembler, const hf::Context& c, const PreNormModel& model);
// The block from the last layer to the loss.
Block head_block(BlockBuilder b, std::string_view last_norm, const Head& head);

// Whether the activation function is one of the two forms of GELU that the runtime computes.
bool is_gelu(const TransformerShape& shape);
// Throws the error for a model with something that the runtime does not compute.
[[noreturn]] void refuse(const hf::Context& context, const Phrase& what);
// Dropout is left out, and said so.
void note_dropout(GraphAssembler& assembler, const hf::Context& context);

}  // namespace zeroplan::embedded
