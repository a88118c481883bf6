// modeling_distilbert: BERT's post-norm layers without token types, pooler and inner dropouts.
#include <string>
#include <utility>

#include "model/implementations/families.hpp"

namespace zeroplan::hf {

namespace {

// MultiHeadSelfAttention: queries divided first, the mask compared and filled in by every layer.
Tensor distilbert_eager(
    Tape& t, const Context& c, const Tensor& query, const Tensor& key, const Tensor& value) {
  Tensor scores;
  const Tensor scaled = aten::scale(t, query, "div");
  {
    const Tensor transposed = aten::transpose(t, key, 2, 3);
    scores = aten::matmul(t, scaled, transposed);
  }
  const Tensor hidden = t.empty(Shape{c.batch, 1, 1, c.sequence}, DType::boolean);
  t.launch({.name = "eq", .traffic = hidden.bytes() * 9});
  scores = aten::masked_fill(t, scores, hidden);
  Tensor weights = aten::softmax(t, scores);
  weights = dropout(t, "dropout", weights, c.shape().attention_dropout);
  Tensor context = aten::matmul(t, weights, value);
  context = aten::transpose(t, context, 1, 2);
  return aten::contiguous(t, context);
}

Tensor distilbert_self_attention(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("attention", in);
  const std::int64_t heads = c.shape().heads;
  Tensor out;
  {
    Tensor query = linear(t, c, "q_lin", in);
    query = split_heads(t, query, heads);
    Tensor key = linear(t, c, "k_lin", in);
    key = split_heads(t, key, heads);
    Tensor value = linear(t, c, "v_lin", in);
    value = split_heads(t, value, heads);
    AttentionArguments arguments;
    arguments.causal = false;
    arguments.dropout = c.shape().attention_dropout;
    arguments.shares_code = ReleaseRule::bert_shares_attention_code;
    arguments.copies_with_mask =
        !c.options.torch_acts(ReleaseRule::sdpa_takes_strided);  // require_contiguous_qkv
    const bool own = c.attention == Attention::eager;
    out = own ? distilbert_eager(t, c, query, key, value)
              : attention(t, c, query, key, value, arguments);
    out = merge_heads(t, out);
    out = linear(t, c, "out_lin", out);
  }
  return t.leave(scope, out);
}

Tensor distilbert_feed_forward(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("ffn", in);
  Tensor x = linear(t, c, "lin1", in);
  x = activation(t, c.shape().activation, x);
  x = linear(t, c, "lin2", x);
  x = dropout(t, "dropout", x, c.shape().hidden_dropout);
  return t.leave(scope, x);
}

// TransformerBlock
Tensor distilbert_layer(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  Tensor attended = distilbert_self_attention(t, c, hidden);
  {
    const Tensor sum = aten::add(t, attended, hidden);
    attended = layer_norm(t, "sa_layer_norm", sum);
  }
  Tensor fed = distilbert_feed_forward(t, c, attended);
  {
    const Tensor sum = aten::add(t, fed, attended);
    fed = layer_norm(t, "output_layer_norm", sum);
  }
  return t.leave(scope, fed);
}

Tensor embeddings(Tape& t, const Context& c) {
  const std::string prefix = "distilbert.embeddings.";
  const Tensor words = token_embedding(t, c, prefix + "word_embeddings");
  const auto scope = t.enter(prefix + "position_embeddings");
  Tensor positions = aten::embedding(t, Shape{1, c.sequence}, t.module_parameter("weight"));
  positions = t.leave(scope, positions);
  Tensor sum = aten::add(t, words, positions);
  sum = layer_norm(t, prefix + "LayerNorm", sum);
  return dropout(t, prefix + "dropout", sum, c.shape().hidden_dropout);
}

Tensor vocabulary_loss(Tape& t, const Context& c, const Tensor& x) {
  Tensor hidden = linear(t, c, "vocab_transform", x);
  hidden = activation(t, c.shape().activation, hidden);
  hidden = layer_norm(t, "vocab_layer_norm", hidden);
  return causal_loss(
      t,
      c,
      {"vocab_projector", "distilbert.embeddings.word_embeddings", LossCode::unshifted_in_model},
      hidden);
}

// The first token through pre_classifier and ReLU.
Tensor labels_loss(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor x = aten::select(t, hidden, 1);
  x = linear(t, c, "pre_classifier", x);
  x = aten::relu(t, x);
  x = dropout(t, "dropout", x, c.shape().hidden_dropout);
  const Tensor logits = linear(t, c, "classifier", x);
  return cross_entropy(t, logits);
}

Tensor distilbert_head(Tape& t, const Context& c) {
  const Tensor hidden = t.input(c.hidden_shape());
  const std::string& name = c.model.architecture;
  if (name == "DistilBertForMaskedLM") return vocabulary_loss(t, c, hidden);
  if (name == "DistilBertForSequenceClassification") return labels_loss(t, c, hidden);
  if (name == "DistilBertForTokenClassification") {
    return token_labels_loss(t, c, "dropout", "classifier", hidden);
  }
  if (name == "DistilBertForQuestionAnswering") {
    const Tensor dropped = dropout(t, "dropout", hidden, c.shape().hidden_dropout);
    return spans_loss(t, c, dropped);
  }
  no_loss(c.model);
}

}  // namespace

void build_distilbert(GraphAssembler& assembler, const Context& given) {
  if (given.model.parameters.front().name.rfind("distilbert.", 0) != 0) no_loss(given.model);
  const Context c = with_sdpa_where(given, ReleaseRule::distilbert_has_sdpa);
  assembler.add("DistilBertModel inputs", "", [&](Tape& t) {
    if (c.attention != Attention::eager && needs_mask(c)) share_mask(t, c);
    const Tensor output = embeddings(t, c);
    hold_embeddings(t, c, output);
    return output;
  });
  assembler.add_layers(
      "TransformerBlock", "distilbert.transformer.layer.", c.shape().layers, [&](Tape& t) {
        return distilbert_layer(t, c);
      });
  assembler.add(c.model.architecture + " head", "", [&](Tape& t) { return distilbert_head(t, c); });
}

}  // namespace zeroplan::hf
