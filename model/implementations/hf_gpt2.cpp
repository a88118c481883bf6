// modeling_gpt2: learned positions, fused projection, the causal mask a registered buffer.
#include <utility>

#include "model/implementations/families.hpp"

namespace zeroplan::hf {

namespace {

// GPT2Attention._attn (eager_attention_forward since 4.48)
Tensor gpt2_eager(
    Tape& t, const Context& c, const Tensor& query, const Tensor& key, const Tensor& value) {
  const Tensor transposed = aten::transpose(t, key, -1, -2);
  Tensor scores = aten::matmul(t, query, transposed);
  scores = aten::div_scalar_tensor(t, scores);
  const Tensor causal = t.buffer(Shape{1, 1, c.sequence, c.sequence}, DType::boolean);
  scores = aten::where_scalar(t, causal, scores);
  if (c.acts(ReleaseRule::gpt2_adds_mask)) scores = aten::add(t, scores, mask(t, c));
  scores = aten::softmax(t, scores);
  scores = aten::to(t, scores, value.dtype());
  scores = aten::dropout(t, scores, c.shape().attention_dropout);
  Tensor out = aten::matmul(t, scores, value);
  out = aten::transpose(t, out, 1, 2);
  return aten::contiguous(t, out);
}

Tensor gpt2_self_attention(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("attn", in);
  const TransformerShape& shape = c.shape();
  Tensor out;
  {
    Tensor fused = conv1d(t, c, "c_attn", in);
    std::vector<Tensor> parts =
        aten::split(t, fused, {shape.hidden, shape.hidden, shape.hidden}, 2);
    fused = Tensor();
    Tensor query = split_heads(t, parts[0], shape.heads);
    Tensor key = split_heads(t, parts[1], shape.heads);
    Tensor value = split_heads(t, parts[2], shape.heads);
    parts.clear();
    update_cache(t, c, key, value);
    AttentionArguments arguments;
    arguments.dropout = shape.attention_dropout;
    arguments.copies_with_mask =
        !c.options.torch_acts(ReleaseRule::sdpa_takes_strided);  // require_contiguous_qkv
    const bool own = c.attention == Attention::eager;
    out = own ? gpt2_eager(t, c, query, key, value) : attention(t, c, query, key, value, arguments);
    out = merge_heads(t, out);
    out = conv1d(t, c, "c_proj", out);
    out = dropout(t, "resid_dropout", out, shape.hidden_dropout);
  }
  return t.leave(scope, out);
}

Tensor gpt2_mlp(Tape& t, const Context& c, const Tensor& x) {
  Tensor hidden = x;
  const auto scope = t.enter("mlp", hidden);
  hidden = conv1d(t, c, "c_fc", hidden);
  hidden = activation(t, c.shape().activation, hidden);
  hidden = conv1d(t, c, "c_proj", hidden);
  hidden = dropout(t, "dropout", hidden, c.shape().hidden_dropout);
  return t.leave(scope, hidden);
}

Tensor gpt2_block(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  Tensor residual = hidden;
  hidden = layer_norm(t, "ln_1", hidden);
  {
    const Tensor attended = gpt2_self_attention(t, c, hidden);
    hidden = aten::add(t, attended, residual);
    residual = hidden;
    hidden = layer_norm(t, "ln_2", hidden);
    // attn_outputs stays a variable of the frame
    const Tensor fed = gpt2_mlp(t, c, hidden);
    hidden = aten::add(t, residual, fed);
  }
  return t.leave(scope, hidden);
}

}  // namespace

void build_gpt2(GraphAssembler& assembler, const Context& given) {
  const Context c = with_sdpa_where(given, ReleaseRule::gpt2_has_sdpa);
  assembler.add("GPT2Model inputs", "", [&](Tape& t) {
    const Tensor tokens = token_embedding(t, c, "transformer.wte");
    hold_embeddings(t, c, tokens);
    const auto scope = t.enter("transformer.wpe");
    const Tensor numbers = t.empty(Shape{1, c.sequence}, DType::int64);
    t.launch({.name = "arange", .kind = OpKind::fill, .traffic = numbers.bytes()});
    Tensor positions = aten::embedding(t, numbers, t.module_parameter("weight"));
    positions = t.leave(scope, positions);
    hold_variable(t, c, Slot::positions, positions);
    const Tensor hidden = aten::add(t, tokens, positions);
    // Before 4.54 (create_causal_mask) an eager layer was given one row of the mask.
    if (needs_mask(c) && (c.attention != Attention::eager || c.acts(ReleaseRule::gpt2_adds_mask)))
      share_mask(t, c);
    return dropout(t, "transformer.drop", hidden, c.shape().embedding_dropout);
  });
  assembler.add_layers(
      "GPT2Block", "transformer.h.", c.shape().layers, [&](Tape& t) { return gpt2_block(t, c); });
  add_causal_head(assembler,
                  c,
                  "GPT2LMHeadModel head",
                  "transformer.ln_f",
                  {"lm_head",
                   "transformer.wte",
                   loss_where(c, ReleaseRule::older_models_share_loss, LossCode::bf16_in_model)});
  if (!c.acts(ReleaseRule::gpt2_drops_triangles)) add_triangular_masks(assembler, c, "attn");
}

}  // namespace zeroplan::hf
