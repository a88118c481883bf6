// GLM as published with "GLM: General Language Model Pretraining with Autoregressive Blank
// Infilling" (arXiv:2103.10360): GLM-10B, GLM-10B-Chinese, GLM-large. The class lives in the
// repository (modeling_glm.py of THUDM/glm-10b; defaults: configuration_glm.py). The model_type is
// also that of GLM-4 in transformers, which has other keys and is a LLaMA-like decoder.
#include "model/families/family.hpp"

namespace zeroplan::families {

namespace {

struct Glm {
  AttentionSizes attention;
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;
  std::int64_t layers = 0;
  bool block_positions = true;
};

Glm read_glm(const ConfigReader& config) {
  Glm glm;
  glm.attention = read_plain_attention(config, {"hidden_size"}, 1024, {"num_attention_heads"}, 16);
  glm.vocabulary = config.core({"vocab_size"}, 30592, SizeKind::vocabulary);
  glm.layers = config.core({"num_layers"}, 24, SizeKind::layers);
  glm.positions = config.size({"max_sequence_length"}, 512, SizeKind::positions);
  // GLM-10B-Chinese scales its scores twice and subtracts each row's maximum in between.
  const Json* scale = config.find({"attention_scale"});
  if (scale != nullptr && scale->is_number() && scale->as_number() > 1.0) {
    config.note(
        "attention_scale above 1: the row maximum that SelfAttention subtracts and its gradient, "
        "the size of one score matrix, are not modelled.");
  }
  glm.block_positions = config.flag({"block_position_encoding"}, true);
  return glm;
}

void write_block(ModelBuilder& builder, const Glm& glm, std::int64_t layer) {
  const std::int64_t hidden = glm.attention.hidden;
  const auto scope = builder.in(layer, "GLMBlock");
  builder.layer_norm("input_layernorm", hidden);
  {
    const auto attention = builder.in("attention", "SelfAttention");
    builder.linear("query_key_value", hidden, 3 * hidden, true);
    builder.leaf("attention_dropout", "Dropout");
    builder.linear("dense", hidden, hidden, true);
    builder.leaf("output_dropout", "Dropout");
  }
  builder.layer_norm("post_attention_layernorm", hidden);
  const auto mlp = builder.in("mlp", "MLP");
  builder.linear("dense_h_to_4h", hidden, 4 * hidden, true);
  builder.linear("dense_4h_to_h", 4 * hidden, hidden, true);
  builder.leaf("dropout", "Dropout");
}

// The logits are a product with word_embeddings inside the trunk: there is no head module.
void write_trunk(ModelBuilder& builder, const Glm& glm) {
  const std::int64_t hidden = glm.attention.hidden;
  builder.embedding("word_embeddings", glm.vocabulary, hidden, "VocabEmbedding");
  const auto stack = builder.in("transformer", "GLMStack");
  builder.leaf("embedding_dropout", "Dropout");
  if (glm.block_positions) {
    builder.embedding("position_embeddings", glm.positions + 1, hidden);
    builder.embedding("block_position_embeddings", glm.positions + 1, hidden);
  } else {
    builder.embedding("position_embeddings", glm.positions, hidden);
  }
  {
    const auto list = builder.in("layers", "ModuleList");
    for (std::int64_t layer = 0; layer < glm.layers; ++layer) write_block(builder, glm, layer);
  }
  builder.layer_norm("final_layernorm", hidden);
}

void fill_shape(const ConfigReader& config, const Glm& glm, TransformerShape& shape) {
  set_sizes(shape, glm.attention, glm.layers, 4 * glm.attention.hidden, glm.vocabulary);
  shape.max_positions = glm.positions;
  shape.norm = NormKind::layer_norm;
  shape.position = PositionKind::learned;
  shape.gated_mlp = false;
  shape.tied_embeddings = true;
  shape.attention_dropout = config.fraction({"attention_dropout_prob"}, 0.1);
  shape.hidden_dropout = config.fraction({"output_dropout_prob"}, 0.1);
  shape.embedding_dropout = config.fraction({"embedding_dropout_prob"}, 0.1);
}

}  // namespace

Model build_glm(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  constexpr std::array kHeads = {Head::conditional_generation, Head::base};
  const Head head = head_of(input, kHeads, Head::conditional_generation);
  const Glm glm = read_glm(config);
  Model model;
  fill_shape(config, glm, model.shape);
  config.throw_problems();

  model.architecture = "GLM" + std::string(suffix(head));
  ModelBuilder builder(model.architecture);
  if (head == Head::base) {
    write_trunk(builder, glm);
  } else {
    const auto trunk = builder.in("glm", "GLMModel");
    write_trunk(builder, glm);
  }
  builder.move_into(model);
  // MLP calls gelu of transformers.activations, which is F.gelu (modeling_glm.py).
  planned_as(model, "glm", {ActivationFunction::gelu, "gelu"});
  return model;
}

}  // namespace zeroplan::families
