// modeling_glm.py of THUDM/glm-10b: GPT-2-like blocks, two learned positions a token, and scores
// that are multiplied by a 0/1 mask before a large negative number is added where it is 0.
//
// Read in three descendants of that file that agree on every line below: gelu is transformers' (the
// fused operation), the mask has the dtype of the scores, there is eager attention only.
#include <string>
#include <utility>

#include "model/implementations/families.hpp"
#include "model/implementations/hf_scores.hpp"

namespace zeroplan::hf {

namespace {

Shape glm_mask_shape(const Context& c) { return Shape{c.batch, 1, c.sequence, c.sequence}; }

// softmax(q (k^T / sqrt(d)) * mask - 65504 (1 - mask)) v
Tensor glm_eager(
    Tape& t, const Context& c, const Tensor& query, const Tensor& key, const Tensor& value) {
  const Tensor mask = t.shared(static_cast<std::int32_t>(Slot::mask), glm_mask_shape(c), t.dtype());
  Tensor scores;
  {
    const Tensor transposed = aten::transpose(t, key, -1, -2);
    const Tensor scaled = aten::scale(t, transposed, "div");
    scores = aten::matmul(t, query, scaled);
  }
  scores = aten::mul(t, scores, mask);
  {
    Tensor hidden = aten::shift(t, mask, "rsub");
    hidden = aten::scale(t, hidden);
    scores = aten::add(t, scores, hidden);
  }
  Tensor probabilities = aten::softmax(t, scores);
  probabilities = dropout(t, "attention_dropout", probabilities, c.shape().attention_dropout);
  Tensor context = aten::matmul(t, probabilities, value);
  context = aten::transpose(t, context, 1, 2);
  return aten::contiguous(t, context);
}

Tensor glm_self_attention(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("attention", in);
  const TransformerShape& shape = c.shape();
  Tensor out;
  {
    const Tensor fused = linear(t, c, "query_key_value", in);
    const std::vector<Tensor> parts =
        aten::split(t, fused, {shape.hidden, shape.hidden, shape.hidden}, 2);
    const Tensor query = split_heads(t, parts[0], shape.heads);
    const Tensor key = split_heads(t, parts[1], shape.heads);
    const Tensor value = split_heads(t, parts[2], shape.heads);
    // All of these stay variables of the frame to its end.
    Tensor context = glm_eager(t, c, query, key, value);
    context = merge_heads(t, context);
    out = linear(t, c, "dense", context);
    out = dropout(t, "output_dropout", out, shape.hidden_dropout);
  }
  return t.leave(scope, out);
}

Tensor glm_mlp(Tape& t, const Context& c, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter("mlp", in);
  Tensor out;
  {
    Tensor inner = linear(t, c, "dense_h_to_4h", in);
    inner = activation(t, c.shape().activation, inner);
    out = linear(t, c, "dense_4h_to_h", inner);
    out = dropout(t, "dropout", out, c.shape().hidden_dropout);
  }
  return t.leave(scope, out);
}

Tensor glm_block(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  Tensor out;
  {
    Tensor normed = layer_norm(t, "input_layernorm", hidden);
    const Tensor attended = glm_self_attention(t, c, normed);
    const Tensor sum = aten::add(t, hidden, attended);
    normed = layer_norm(t, "post_attention_layernorm", sum);
    const Tensor fed = glm_mlp(t, c, normed);
    out = aten::add(t, sum, fed);
  }
  return t.leave(scope, out);
}

Tensor positions(Tape& t, const Context& c, const std::string& module) {
  const auto scope = t.enter(module);
  const Tensor out = aten::embedding(t, Shape{c.batch, c.sequence}, t.module_parameter("weight"));
  return t.leave(scope, out);
}

// build_mask_matrix: ones, tril, and the first part of every row filled in.
void share_prefix_mask(Tape& t, const Context& c) {
  const Tensor lower = t.empty(Shape{1, c.sequence, c.sequence}, t.dtype());
  t.launch({.name = "tril", .traffic = lower.bytes() * 3, .kernels = 2});
  const Tensor mask = t.empty(glm_mask_shape(c), t.dtype());
  t.launch({.name = "masked_fill", .traffic = mask.bytes() * 2});
  t.share(static_cast<std::int32_t>(Slot::mask), mask);
}

Tensor inputs(Tape& t, const Context& c, const std::string& trunk) {
  const Tensor words = token_embedding(t, c, trunk + "word_embeddings");
  share_prefix_mask(t, c);
  const std::string stack = trunk + "transformer.";
  const Tensor first = positions(t, c, stack + "position_embeddings");
  Tensor hidden = aten::add(t, words, first);
  const std::string second_name = stack + "block_position_embeddings";
  if (t.parameter(second_name + ".weight").defined()) {
    const Tensor second = positions(t, c, second_name);
    hidden = aten::add(t, hidden, second);
  }
  return dropout(t, stack + "embedding_dropout", hidden, c.shape().embedding_dropout);
}

// GLMModel multiplies with the embedding itself; the loss is taken of the logits as they are, all
// positions of them (the labels come shifted from the collator).
Tensor head(Tape& t, const Context& c, const std::string& trunk) {
  Tensor hidden = t.input(c.hidden_shape());
  hidden = layer_norm(t, trunk + "transformer.final_layernorm", hidden);
  t.set_category(MemoryCategory::logits);
  const Tensor weight = t.parameter(trunk + "word_embeddings.weight");
  t.tie(weight, {.first = true, .last = false});
  const Tensor logits = c.options.zero3_linear ? aten::zero3_linear(t, hidden, weight, Tensor())
                                               : aten::linear(t, hidden, weight, Tensor());
  if (c.options.scores.code != TokenScores::none) return scored_logits_loss(t, c, logits);
  t.hold(logits);
  const Tensor rows = aten::view(t, logits, Shape{c.batch * c.sequence, c.shape().vocabulary});
  const Tensor log_probabilities = aten::log_softmax(t, rows);
  return aten::nll_loss(t, log_probabilities);
}

}  // namespace

void build_glm(GraphAssembler& assembler, const Context& given) {
  Context c = given;
  c.attention = Attention::eager;
  if (given.attention == Attention::flash) {
    assembler.assume("GLM's code has eager attention only: flash attention is not applied.");
  }
  const bool headed = c.model.parameters.front().name.compare(0, 4, "glm.") == 0;
  const std::string trunk = headed ? "glm." : "";
  if (!headed) {
    assembler.assume(
        "GLMModel returns logits: the loss is taken as in "
        "GLMForConditionalGeneration.");
  }
  assembler.add("GLMModel inputs", "", [&](Tape& t) { return inputs(t, c, trunk); });
  assembler.add_layers("GLMBlock", trunk + "transformer.layers.", c.shape().layers, [&](Tape& t) {
    return glm_block(t, c);
  });
  assembler.add("GLMModel head", "", [&](Tape& t) { return head(t, c, trunk); });
}

}  // namespace zeroplan::hf
