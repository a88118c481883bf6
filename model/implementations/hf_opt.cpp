// modeling_opt. Through 4.48 it makes heads contiguous (_shape), clamps the masked scores and takes
// the softmax in the compute dtype (fp16 excepted); from 4.49 on it does as Llama does.
#include <algorithm>
#include <string>
#include <utility>

#include "model/implementations/families.hpp"

namespace zeroplan::hf {

namespace {

bool copies_heads(const Context& c) { return !c.acts(ReleaseRule::opt_keeps_heads); }

// OPTAttention.forward through 4.48, behind its projections
Tensor flat_attention(
    Tape& t, const Context& c, const Tensor& q, const Tensor& k, const Tensor& v, double dropped) {
  const std::int64_t heads = q.size(1), s = q.size(2), dim = q.size(3), rows = c.batch * heads;
  const auto flat = [&](const Tensor& x) { return aten::view(t, x, Shape{rows, s, dim}); };
  const Tensor query = flat(q), key = flat(k), value = flat(v);
  Tensor scores;
  {
    const Tensor columns = aten::transpose(t, key, 1, 2);
    scores = aten::bmm(t, query, columns);
  }
  scores = aten::view(t, scores, Shape{c.batch, heads, s, s});
  scores = aten::add(t, scores, mask(t, c));
  scores = aten::maximum_scalar(t, scores);
  scores = aten::view(t, scores, Shape{rows, s, s});
  if (t.dtype() == DType::fp16) {
    scores = aten::softmax(t, scores, DType::fp32);
    scores = aten::to(t, scores, DType::fp16);
  } else {
    scores = aten::softmax(t, scores);
  }
  const Tensor probabilities = aten::dropout(t, scores, dropped);
  Tensor out = aten::bmm(t, probabilities, value);
  out = aten::view(t, out, Shape{c.batch, heads, s, dim});
  return aten::transpose(t, out, 1, 2);
}

Tensor opt_self_attention(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("self_attn", in);
  const TransformerShape& shape = c.shape();
  Tensor query = linear(t, c, "q_proj", in);
  query = aten::scale(t, query);
  query = split_heads(t, query, shape.heads);
  Tensor key = linear(t, c, "k_proj", in);
  Tensor value = linear(t, c, "v_proj", in);
  key = split_heads(t, key, shape.heads);
  value = split_heads(t, value, shape.heads);
  if (copies_heads(c)) {
    key = aten::contiguous(t, key);
    value = aten::contiguous(t, value);
    query = aten::contiguous(t, query);
  }
  update_cache(t, c, key, value);
  AttentionArguments arguments;
  arguments.dropout = shape.attention_dropout;
  arguments.scaled = false;
  arguments.shares_code = ReleaseRule::opt_shares_attention_code;
  arguments.copies_with_mask = false;
  const bool flat = copies_heads(c) && c.attention == Attention::eager;
  Tensor out = flat ? flat_attention(t, c, query, key, value, arguments.dropout)
                    : attention(t, c, query, key, value, arguments);
  out = merge_heads(t, out);
  out = linear(t, c, "out_proj", out);
  return t.leave(scope, out);
}

// OPT-350m embeds in fewer dimensions than it computes in; the others have no such modules.
Tensor project(Tape& t, const Context& c, std::string_view module, const Tensor& x) {
  if (!has_layer(t, module)) return x;
  return linear(t, c, module, x);
}

bool has_module(const Model& model, std::string_view name) {
  return std::any_of(model.modules.begin(), model.modules.end(), [&](const Module& module) {
    return module.name == name;
  });
}

// do_layer_norm_before: the norms stand before the branches, or (OPT-350m) behind the sums.
Tensor opt_layer(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  const double p = c.shape().hidden_dropout;
  const bool before = !c.shape().post_norm;
  Tensor residual = hidden;
  if (before) hidden = layer_norm(t, "self_attn_layer_norm", hidden);
  hidden = opt_self_attention(t, c, hidden);
  hidden = aten::dropout(t, hidden, p);
  hidden = aten::add(t, residual, hidden);
  if (!before) hidden = layer_norm(t, "self_attn_layer_norm", hidden);
  hidden = aten::reshape(t, hidden, Shape{c.batch * c.sequence, c.shape().hidden});
  residual = hidden;
  if (before) hidden = layer_norm(t, "final_layer_norm", hidden);
  hidden = linear(t, c, "fc1", hidden);
  hidden = activation(t, c.shape().activation, hidden);
  hidden = linear(t, c, "fc2", hidden);
  hidden = aten::dropout(t, hidden, p);
  hidden = aten::add(t, residual, hidden);
  hidden = aten::view(t, hidden, c.hidden_shape());
  if (!before) hidden = layer_norm(t, "final_layer_norm", hidden);
  return t.leave(scope, hidden);
}

}  // namespace

void build_opt(GraphAssembler& assembler, const Context& given) {
  const Context c = with_sdpa_where(given, ReleaseRule::opt_has_sdpa);
  const bool classifies = c.model.architecture == "OPTForSequenceClassification";
  if (!c.shape().has_logits && !classifies) no_loss(c.model);
  assembler.add("OPTDecoder inputs", "", [&](Tape& t) {
    Tensor tokens = token_embedding(t, c, "model.decoder.embed_tokens");
    if (needs_mask(c)) share_mask(t, c);
    const auto scope = t.enter("model.decoder.embed_positions");
    const Tensor numbers = t.empty(Shape{c.batch, c.sequence}, DType::int64);  // + offset
    t.launch({.name = "cumsum", .traffic = numbers.bytes() * 5, .kernels = 4});
    Tensor positions = aten::embedding(t, numbers, t.module_parameter("weight"));
    positions = t.leave(scope, positions);
    hold_variable(t, c, Slot::positions, positions);
    tokens = project(t, c, "model.decoder.project_in", tokens);
    hold_embeddings(t, c, tokens);
    return aten::add(t, tokens, positions);
  });
  assembler.add_layers("OPTDecoderLayer", "model.decoder.layers.", c.shape().layers, [&](Tape& t) {
    return opt_layer(t, c);
  });
  assembler.add(c.model.architecture + " head", "", [&](Tape& t) {
    Tensor hidden = t.input(c.hidden_shape());
    constexpr std::string_view kFinalNorm = "model.decoder.final_layer_norm";
    const bool normed = t.has_parameter(kFinalNorm, "weight") || has_module(c.model, kFinalNorm);
    if (normed) hidden = layer_norm(t, kFinalNorm, hidden);
    hidden = project(t, c, "model.decoder.project_out", hidden);
    const bool scores_tokens = c.options.scores.code == TokenScores::values;
    if (classifies && !scores_tokens) return last_position_loss(t, c, "score", hidden);
    return causal_loss(
        t,
        c,
        {"lm_head",
         "model.decoder.embed_tokens",
         loss_where(c, ReleaseRule::older_models_share_loss, LossCode::bf16_in_model)},
        hidden);
  });
}

}  // namespace zeroplan::hf
