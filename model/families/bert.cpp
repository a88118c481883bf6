// BERT with its head of masked words, for the embedded runtime, and the trunks of BERT and RoBERTa
// (with XLM-RoBERTa and CamemBERT), whose parameters are counted: Hugging Face's classes with heads
// are recorded. Defaults: transformers 4.51.3 configuration_bert.py, configuration_roberta.py.
#include <array>
#include <string>

#include "model/families/family.hpp"

namespace zeroplan::families {

namespace {

struct Bert {
  std::string classes;  // "Bert", "Roberta", "XLMRoberta", ...
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;
  std::int64_t token_types = 0;
  std::int64_t layers = 0;
  std::int64_t intermediate = 0;
  AttentionSizes attention;
  bool tied = true;
  bool relative = false;  // position_embedding_type relative_key(_query)
  Activation activation;
};

Bert read_bert(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  Bert bert;
  bert.classes = "Bert";
  if (input.model_type == "roberta") bert.classes = "Roberta";
  if (input.model_type == "xlm-roberta") bert.classes = "XLMRoberta";
  if (input.model_type == "camembert") bert.classes = "Camembert";
  const std::int64_t vocabulary = input.model_type == "roberta" ? 50265 : 30522;
  bert.vocabulary = config.core({"vocab_size"}, vocabulary, SizeKind::vocabulary);
  bert.positions = config.size({"max_position_embeddings"}, 512, SizeKind::positions);
  bert.token_types = config.size({"type_vocab_size"}, 2, SizeKind::vocabulary);
  bert.layers = config.core({"num_hidden_layers"}, 12, SizeKind::layers);
  bert.attention = read_plain_attention(config, {"hidden_size"}, 768, {"num_attention_heads"}, 12);
  bert.intermediate = config.core({"intermediate_size"}, 3072, SizeKind::width);
  bert.tied = config.flag({"tie_word_embeddings"}, true);
  bert.relative = config.text({"position_embedding_type"}, "absolute") != "absolute";
  bert.activation = activation_of(config.text({"hidden_act"}, "gelu"));
  return bert;
}

int write_embeddings(ModelBuilder& builder, const Bert& bert) {
  const std::int64_t hidden = bert.attention.hidden;
  const auto scope = builder.in("embeddings", bert.classes + "Embeddings");
  const int words = builder.embedding("word_embeddings", bert.vocabulary, hidden);
  builder.embedding("position_embeddings", bert.positions, hidden);
  builder.embedding("token_type_embeddings", bert.token_types, hidden);
  builder.layer_norm("LayerNorm", hidden);
  builder.leaf("dropout", "Dropout");
  return words;
}

void write_output(ModelBuilder& builder,
                  const std::string& type,
                  std::int64_t width,
                  std::int64_t hidden) {
  const auto scope = builder.in("output", type);
  builder.linear("dense", width, hidden, true);
  builder.layer_norm("LayerNorm", hidden);
  builder.leaf("dropout", "Dropout");
}

void write_layer(ModelBuilder& builder, const Bert& bert, std::int64_t layer) {
  const std::int64_t hidden = bert.attention.hidden;
  const auto scope = builder.in(layer, bert.classes + "Layer");
  {
    const auto attention = builder.in("attention", bert.classes + "Attention");
    {
      const auto self = builder.in("self", bert.classes + "SdpaSelfAttention");
      builder.linear("query", hidden, hidden, true);
      builder.linear("key", hidden, hidden, true);
      builder.linear("value", hidden, hidden, true);
      builder.leaf("dropout", "Dropout");
      if (bert.relative) {
        builder.embedding("distance_embedding", 2 * bert.positions - 1, bert.attention.head_dim);
      }
    }
    write_output(builder, bert.classes + "SelfOutput", hidden, hidden);
  }
  {
    const auto intermediate = builder.in("intermediate", bert.classes + "Intermediate");
    builder.linear("dense", hidden, bert.intermediate, true);
    builder.leaf("intermediate_act_fn", bert.activation.class_name);
  }
  write_output(builder, bert.classes + "Output", bert.intermediate, hidden);
}

int write_trunk(ModelBuilder& builder, const Bert& bert) {
  const int words = write_embeddings(builder, bert);
  const auto encoder = builder.in("encoder", bert.classes + "Encoder");
  const auto list = builder.in("layer", "ModuleList");
  for (std::int64_t layer = 0; layer < bert.layers; ++layer) write_layer(builder, bert, layer);
  return words;
}

// cls.predictions: the decoder's bias is the module's own bias, registered under both names.
void write_predictions(ModelBuilder& builder, const Bert& bert, int words) {
  const std::int64_t hidden = bert.attention.hidden;
  const auto cls = builder.in("cls", "BertOnlyMLMHead");
  const auto scope = builder.in("predictions", "BertLMPredictionHead");
  const int bias = builder.parameter("bias", {bert.vocabulary});
  {
    const auto transform = builder.in("transform", "BertPredictionHeadTransform");
    builder.linear("dense", hidden, hidden, true);
    builder.leaf("transform_act_fn", bert.activation.class_name);
    builder.layer_norm("LayerNorm", hidden);
  }
  const auto decoder = builder.in("decoder", "Linear");
  if (bert.tied) {
    builder.uses(words);
  } else {
    builder.parameter("weight", {bert.vocabulary, hidden});
  }
  builder.uses(bias);
}

void fill_shape(const ConfigReader& config, const Bert& bert, TransformerShape& shape) {
  shape.kind = ModelKind::encoder;
  set_sizes(shape, bert.attention, bert.layers, bert.intermediate, bert.vocabulary);
  // RoBERTa counts positions from padding_idx + 1 = 2.
  shape.max_positions = bert.positions - (bert.classes != "Bert" && bert.positions > 2 ? 2 : 0);
  shape.norm = NormKind::layer_norm;
  shape.norm_epsilon = config.fraction({"layer_norm_eps"}, 1e-12);
  shape.position = PositionKind::learned;
  shape.gated_mlp = false;
  shape.tied_embeddings = bert.tied;
  shape.attention_dropout = config.fraction({"attention_probs_dropout_prob"}, 0.1);
  shape.hidden_dropout = config.fraction({"hidden_dropout_prob"}, 0.1);
  shape.embedding_dropout = shape.hidden_dropout;
}

}  // namespace

Model build_bert(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  const Head head = head_of(input, std::array{Head::masked_lm, Head::base}, Head::masked_lm);
  const Bert bert = read_bert(input);
  Model model;
  fill_shape(config, bert, model.shape);
  config.throw_problems();

  model.architecture = bert.classes + std::string(suffix(head));
  ModelBuilder builder(model.architecture);
  if (head == Head::base) {
    write_trunk(builder, bert);
    const auto scope = builder.in("pooler", bert.classes + "Pooler");
    builder.linear("dense", bert.attention.hidden, bert.attention.hidden, true);
    builder.leaf("activation", "Tanh");
  } else {
    int words = -1;
    {
      const auto trunk = builder.in("bert", "BertModel");
      words = write_trunk(builder, bert);
    }
    write_predictions(builder, bert, words);
  }
  builder.move_into(model);
  planned_as(model, "bert", bert.activation);
  model.shape.has_logits = head != Head::base;
  if (head == Head::base) not_planned(model, phrase("{} computes no loss", model.architecture));
  return model;
}

}  // namespace zeroplan::families
