// modeling_bert and its copies (RoBERTa, XLM-RoBERTa, CamemBERT): post-norm encoder, its heads.
#include <string>
#include <utility>

#include "model/implementations/families.hpp"

namespace zeroplan::hf {

namespace {

// BertSelfAttention: the additive mask is (b, 1, 1, s), a tensor of a few kilobytes.
Tensor bert_eager(
    Tape& t, const Context& c, const Tensor& query, const Tensor& key, const Tensor& value) {
  const Tensor transposed = aten::transpose(t, key, -1, -2);
  Tensor scores = aten::matmul(t, query, transposed);
  scores = aten::scale(t, scores, "div");
  const Tensor mask =
      t.shared(static_cast<std::int32_t>(Slot::mask), Shape{c.batch, 1, 1, c.sequence}, t.dtype());
  scores = aten::add(t, scores, mask);
  Tensor probabilities = aten::softmax(t, scores);
  probabilities = dropout(t, "dropout", probabilities, c.shape().attention_dropout);
  Tensor context = aten::matmul(t, probabilities, value);
  context = aten::transpose(t, context, 1, 2);
  return aten::contiguous(t, context);
}

Tensor bert_self_attention(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("self", in);
  const TransformerShape& shape = c.shape();
  Tensor query = linear(t, c, "query", in);
  Tensor key = linear(t, c, "key", in);
  key = split_heads(t, key, shape.heads);
  Tensor value = linear(t, c, "value", in);
  value = split_heads(t, value, shape.heads);
  query = split_heads(t, query, shape.heads);
  AttentionArguments arguments;
  arguments.causal = false;
  arguments.dropout = shape.attention_dropout;
  arguments.shares_code = ReleaseRule::bert_shares_attention_code;
  arguments.copies_with_mask =
      !c.options.torch_acts(ReleaseRule::sdpa_takes_strided);  // require_contiguous_qkv
  const bool own = c.attention == Attention::eager;
  Tensor out =
      own ? bert_eager(t, c, query, key, value) : attention(t, c, query, key, value, arguments);
  out = merge_heads(t, out);
  return t.leave(scope, out);
}

// BertSelfOutput and BertOutput: LayerNorm(dropout(dense(x)) + input)
Tensor output(Tape& t, const Context& c, const Tensor& x, const Tensor& input) {
  Tensor hidden = x;
  const auto scope = t.enter("output", hidden);
  hidden = linear(t, c, "dense", hidden);
  hidden = dropout(t, "dropout", hidden, c.shape().hidden_dropout);
  {
    const Tensor sum = aten::add(t, hidden, input);
    hidden = layer_norm(t, "LayerNorm", sum);
  }
  return t.leave(scope, hidden);
}

Tensor bert_layer(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  Tensor attended;
  {
    Tensor in = hidden;
    const auto attention_scope = t.enter("attention", in);
    const Tensor own = bert_self_attention(t, c, in);
    attended = t.leave(attention_scope, output(t, c, own, in));
  }
  Tensor intermediate;
  {
    Tensor in = attended;
    const auto dense = t.enter("intermediate", in);
    intermediate = linear(t, c, "dense", in);
    intermediate = activation(t, c.shape().activation, intermediate);
    intermediate = t.leave(dense, intermediate);
  }
  return t.leave(scope, output(t, c, intermediate, attended));
}

Tensor embedded(Tape& t, const std::string& module, const Shape& ids) {
  const auto scope = t.enter(module);
  const Tensor out = aten::embedding(t, ids, t.module_parameter("weight"));
  return t.leave(scope, out);
}

// The model's trunk and head by their names.
struct Names {
  bool roberta = false;
  std::string trunk;  // "bert."
  std::string head;   // "ForMaskedLM"
};

Names names_of(const Model& model) {
  Names names;
  names.roberta = model.model_type != "bert";
  names.trunk = names.roberta ? "roberta." : "bert.";
  const std::size_t at = model.architecture.find("For");
  if (at == std::string::npos || model.parameters.front().name.rfind(names.trunk, 0) != 0) {
    no_loss(model);
  }
  names.head = model.architecture.substr(at);
  return names;
}

// Since 5.0 the token types are gathered from their buffer: one row of ids that autograd keeps.
Tensor gathered_types(Tape& t, const Context& c, const std::string& module) {
  const auto scope = t.enter(module);
  Tensor ids = t.empty(Shape{1, c.sequence}, DType::int64);
  t.launch({.name = "gather", .kind = OpKind::gather, .traffic = ids.bytes() * 3});
  ids = aten::expand(t, ids, Shape{c.batch, c.sequence});
  return t.leave(scope, aten::embedding(t, ids, t.module_parameter("weight")));
}

// BertEmbeddings.forward; RoBERTa computes positions for every row
Tensor embeddings(Tape& t, const Context& c, const Names& names) {
  const std::string prefix = names.trunk + "embeddings.";
  const Tensor words = token_embedding(t, c, prefix + "word_embeddings");
  const Shape ids{c.batch, c.sequence};
  const std::string type_module = prefix + "token_type_embeddings";
  const Tensor types = c.acts(ReleaseRule::bert_gathers_types) && !names.roberta
                           ? gathered_types(t, c, type_module)
                           : embedded(t, type_module, ids);
  Tensor sum = aten::add(t, words, types);
  const Tensor positions =
      embedded(t, prefix + "position_embeddings", names.roberta ? ids : Shape{1, c.sequence});
  sum = aten::add_in_place(t, sum, positions);
  sum = layer_norm(t, prefix + "LayerNorm", sum);
  return dropout(t, prefix + "dropout", sum, c.shape().hidden_dropout);
}

// BertPooler on the first token.
Tensor pooled(Tape& t, const Context& c, const Names& names, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter(names.trunk + "pooler", in);
  Tensor out;
  {
    const Tensor first = aten::select(t, in, 1);
    out = linear(t, c, "dense", first);
    out = aten::tanh(t, out);
  }
  return t.leave(scope, out);
}

// BertLMPredictionHead or RobertaLMHead: transform, then the tied decoder with a bias of its own.
// CrossEntropyLoss reads the logits as they are (4.36 to 4.57).
Tensor vocabulary_loss(Tape& t, const Context& c, const Names& names, const Tensor& x) {
  const std::string prefix = names.roberta ? "lm_head." : "cls.predictions.";
  const std::string transform = names.roberta ? prefix : prefix + "transform.";
  Tensor hidden = linear(t, c, transform + "dense", x);
  hidden = activation(t, names.roberta ? ActivationFunction::gelu : c.shape().activation, hidden);
  hidden = layer_norm(t, transform + (names.roberta ? "layer_norm" : "LayerNorm"), hidden);
  t.set_category(MemoryCategory::logits);
  const auto scope = t.enter(prefix + "decoder", hidden);
  Tensor weight = t.module_parameter("weight");
  if (!weight.defined()) {
    weight = t.parameter(names.trunk + "embeddings.word_embeddings.weight");
    t.tie(weight, {.first = true, .last = false});
  }
  Tensor logits = aten::linear(t, hidden, weight, t.parameter(prefix + "bias"));
  logits = t.leave(scope, logits);
  return cross_entropy(t, logits);
}

// RobertaClassificationHead on the first token.
Tensor roberta_labels_loss(Tape& t, const Context& c, const Tensor& hidden) {
  const double p = c.shape().hidden_dropout;
  Tensor x = aten::select(t, hidden, 1);
  x = dropout(t, "classifier.dropout", x, p);
  x = linear(t, c, "classifier.dense", x);
  x = aten::tanh(t, x);
  x = dropout(t, "classifier.dropout", x, p);
  x = linear(t, c, "classifier.out_proj", x);
  return cross_entropy(t, x);
}

Tensor labels_loss(Tape& t, const Context& c, const Names& names, const Tensor& hidden) {
  if (names.roberta) return roberta_labels_loss(t, c, hidden);
  Tensor x = pooled(t, c, names, hidden);
  x = dropout(t, "dropout", x, c.shape().hidden_dropout);
  const Tensor logits = linear(t, c, "classifier", x);
  return cross_entropy(t, logits);
}

Tensor sentence_loss(Tape& t, const Context& c, const Tensor& first) {
  const Tensor logits = linear(t, c, "cls.seq_relationship", first);
  return cross_entropy(t, logits);
}

Tensor head(Tape& t, const Context& c, const Names& names) {
  const Tensor hidden = t.input(c.hidden_shape());
  if (names.head == "ForMaskedLM") return vocabulary_loss(t, c, names, hidden);
  if (names.head == "ForSequenceClassification") return labels_loss(t, c, names, hidden);
  if (names.head == "ForTokenClassification") {
    return token_labels_loss(t, c, "dropout", "classifier", hidden);
  }
  if (names.head == "ForQuestionAnswering") return spans_loss(t, c, hidden);
  if (names.head == "ForPreTraining") {
    const Tensor first = pooled(t, c, names, hidden);
    const Tensor masked = vocabulary_loss(t, c, names, hidden);
    const Tensor next = sentence_loss(t, c, first);
    return aten::add(t, masked, next);
  }
  if (names.head == "ForNextSentencePrediction") {
    const Tensor first = pooled(t, c, names, hidden);
    return sentence_loss(t, c, first);
  }
  no_loss(c.model);
}

}  // namespace

void build_bert(GraphAssembler& assembler, const Context& given) {
  const Names names = names_of(given.model);
  const Context c = with_sdpa_where(
      given, names.roberta ? ReleaseRule::roberta_has_sdpa : ReleaseRule::bert_has_sdpa);
  assembler.add("BertModel inputs", "", [&](Tape& t) {
    if (c.attention == Attention::eager) {
      Tensor mask = t.empty(Shape{c.batch, 1, 1, c.sequence}, t.dtype());
      t.launch({.name = "mul", .traffic = mask.bytes() * 3, .kernels = 3});
      t.share(static_cast<std::int32_t>(Slot::mask), mask);
    } else if (needs_mask(c)) {
      share_mask(t, c);
    }
    const Tensor output = embeddings(t, c, names);
    hold_embeddings(t, c, output);  // embedding_output
    return output;
  });
  assembler.add_layers("BertLayer", names.trunk + "encoder.layer.", c.shape().layers, [&](Tape& t) {
    return bert_layer(t, c);
  });
  assembler.add(c.model.architecture + " head", "", [&](Tape& t) { return head(t, c, names); });
}

}  // namespace zeroplan::hf
