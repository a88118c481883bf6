// modeling_mpt: ALiBi in fp32 added to the scores, norms without bias, eager attention only.
#include <utility>
#include <vector>

#include "model/implementations/families.hpp"

namespace zeroplan::hf {

namespace {

bool mpt_alibi(const Context& c) { return c.shape().position == PositionKind::alibi; }

struct MptAttended {
  Tensor output, weights, key, value;
};

// MptAttention.forward: attention_scores stays a variable of the frame.
MptAttended attend(Tape& t, const Context& c, const Tensor& in) {
  const TransformerShape& shape = c.shape();
  const std::int64_t s = c.sequence;
  const Tensor mixed = linear(t, c, "Wqkv", in);
  std::vector<Tensor> parts = aten::split(t, mixed, {shape.hidden, shape.hidden, shape.hidden}, 2);
  const Tensor query = split_heads(t, parts[0], shape.heads);
  MptAttended result;
  result.key = split_heads(t, parts[1], shape.heads);
  result.value = split_heads(t, parts[2], shape.heads);
  parts.clear();
  update_cache(t, c, result.key, result.value);
  Tensor scores;
  {
    const Tensor columns = aten::transpose(t, result.key, -1, -2);
    const Tensor product = aten::matmul(t, query, columns);
    scores = aten::scale(t, product);
  }
  if (mpt_alibi(c)) {
    const Tensor bias =
        t.shared(static_cast<std::int32_t>(Slot::alibi), Shape{shape.heads, 1, s}, DType::fp32);
    scores = aten::add(t, scores, bias);
  }
  const Tensor hidden_keys =
      t.shared(static_cast<std::int32_t>(Slot::mask), Shape{c.batch, 1, s, s}, DType::boolean);
  scores = aten::masked_fill(t, scores, hidden_keys);
  {
    const Tensor wide = aten::to(t, scores, DType::fp32);
    const Tensor probabilities = aten::softmax(t, wide);
    result.weights = aten::to(t, probabilities, t.dtype());
  }
  result.weights = aten::dropout(t, result.weights, shape.attention_dropout);
  result.output = aten::matmul(t, result.weights, result.value);
  result.output = aten::transpose(t, result.output, 1, 2);
  result.output = aten::contiguous(t, result.output);
  result.output = merge_heads(t, result.output);
  result.output = linear(t, c, "out_proj", result.output);
  return result;
}

MptAttended mpt_self_attention(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("attn", in);
  MptAttended result = attend(t, c, in);
  result.output = t.leave(scope, result.output);
  // Since 4.54 the cache, if any, has keys and values; before, the block's frame keeps a pair.
  if (c.acts(ReleaseRule::mpt_drops_pair)) result.key = result.value = Tensor();
  return result;
}

Tensor mpt_mlp(Tape& t, const Context& c, const Tensor& x, const Tensor& residual) {
  Tensor in = x;
  const auto scope = t.enter("ffn", in);
  Tensor hidden = linear(t, c, "up_proj", in);
  {
    Tensor inner = hidden;
    const auto act = t.enter("act", inner);
    hidden = t.leave(act, activation(t, c.shape().activation, inner));
  }
  const Tensor intermediate = linear(t, c, "down_proj", hidden);
  Tensor output = aten::dropout(t, intermediate, c.shape().attention_dropout);
  output = aten::add(t, output, residual);
  return t.leave(scope, output);
}

Tensor mpt_block(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  Tensor normed = layer_norm(t, "norm_1", hidden);
  Tensor residual = hidden;
  const MptAttended attended = mpt_self_attention(t, c, normed);
  {
    // attn_config.attn_pdrop is the dropout of the residual too
    const Tensor dropped =
        dropout(t, "resid_attn_dropout", attended.output, c.shape().attention_dropout);
    hidden = aten::add(t, dropped, residual);
  }
  normed = layer_norm(t, "norm_2", hidden);
  residual = hidden;
  return t.leave(scope, mpt_mlp(t, c, normed, residual));
}

// _prepare_4d_causal_attention_mask(...).bool()
void share_bool_mask(Tape& t, const Context& c) {
  const Shape square{c.batch, 1, c.sequence, c.sequence};
  Tensor floats = t.empty(square, t.dtype());
  t.launch({.name = "masked_fill", .traffic = floats.bytes() * 2, .kernels = 4});
  Tensor hidden_keys = t.empty(square, DType::boolean);
  t.launch(
      {.name = "_to_copy", .kind = OpKind::copy, .traffic = floats.bytes() + hidden_keys.bytes()});
  t.share(static_cast<std::int32_t>(Slot::mask), hidden_keys);
}

}  // namespace

void build_mpt(GraphAssembler& assembler, const Context& given) {
  Context c = given;
  c.attention = Attention::eager;
  const TransformerShape& shape = c.shape();
  if (!mpt_alibi(c)) {
    assembler.assume(
        "MPT without ALiBi is llm-foundry's: the layers of transformers' class are taken, without "
        "its position bias.");
  }
  assembler.add("MptModel inputs", "", [&](Tape& t) {
    Tensor hidden = token_embedding(t, c, "transformer.wte");
    hold_embeddings(t, c, hidden);
    if (shape.position == PositionKind::learned) {
      const auto scope = t.enter("transformer.wpe");
      Tensor positions = aten::embedding(t, Shape{1, c.sequence}, t.module_parameter("weight"));
      positions = t.leave(scope, positions);
      hidden = aten::add(t, hidden, positions);
    }
    if (mpt_alibi(c)) {
      // arange(1 - length, 1) * slopes, int32 times fp32, for all max_seq_len positions
      Tensor bias = t.empty(Shape{shape.heads, 1, shape.max_positions}, DType::fp32);
      t.launch({.name = "mul", .traffic = bias.bytes()});
      t.share(static_cast<std::int32_t>(Slot::alibi), bias);
    }
    share_bool_mask(t, c);
    return hidden;
  });
  assembler.add_layers(
      "MptBlock", "transformer.blocks.", shape.layers, [&](Tape& t) { return mpt_block(t, c); });
  add_causal_head(assembler,
                  c,
                  "MptForCausalLM head",
                  "transformer.norm_f",
                  {"lm_head",
                   "transformer.wte",
                   loss_where(c, ReleaseRule::older_models_share_loss, LossCode::bf16_in_model)});
}

}  // namespace zeroplan::hf
