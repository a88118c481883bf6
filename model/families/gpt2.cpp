// GPT-2, for Megatron and the embedded runtime: Hugging Face's class is recorded. Defaults:
// transformers 4.51.3 configuration_gpt2.py.
#include "model/families/family.hpp"

namespace zeroplan::families {

namespace {

struct Gpt2 {
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;
  std::int64_t layers = 0;
  std::int64_t intermediate = 0;
  AttentionSizes attention;
  bool tied = true;
  Activation activation;
};

Gpt2 read_gpt2(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  Gpt2 gpt;
  gpt.vocabulary = config.core({"vocab_size"}, 50257, SizeKind::vocabulary);
  gpt.positions =
      config.size({"n_positions", "max_position_embeddings", "n_ctx"}, 1024, SizeKind::positions);
  gpt.layers = config.core({"n_layer", "num_hidden_layers"}, 12, SizeKind::layers);
  gpt.attention = read_plain_attention(
      config, {"n_embd", "hidden_size"}, 768, {"n_head", "num_attention_heads"}, 12);
  gpt.intermediate =
      config.derived({"n_inner", "intermediate_size"}, 4 * gpt.attention.hidden, SizeKind::width);
  gpt.tied = config.flag({"tie_word_embeddings"}, true);
  gpt.activation = activation_of(config.text({"activation_function"}, "gelu_new"));
  return gpt;
}

void write_block(ModelBuilder& builder, const Gpt2& gpt, std::int64_t layer) {
  const std::int64_t hidden = gpt.attention.hidden;
  const auto scope = builder.in(layer, "GPT2Block");
  builder.layer_norm("ln_1", hidden);
  {
    const auto attention = builder.in("attn", "GPT2Attention");
    builder.conv1d("c_attn", hidden, 3 * hidden);
    builder.conv1d("c_proj", hidden, hidden);
    builder.leaf("attn_dropout", "Dropout");
    builder.leaf("resid_dropout", "Dropout");
  }
  builder.layer_norm("ln_2", hidden);
  const auto mlp = builder.in("mlp", "GPT2MLP");
  builder.conv1d("c_fc", hidden, gpt.intermediate);
  builder.conv1d("c_proj", gpt.intermediate, hidden);
  builder.leaf("act", gpt.activation.class_name);
  builder.leaf("dropout", "Dropout");
}

int write_trunk(ModelBuilder& builder, const Gpt2& gpt) {
  const int embedding = builder.embedding("wte", gpt.vocabulary, gpt.attention.hidden);
  builder.embedding("wpe", gpt.positions, gpt.attention.hidden);
  builder.leaf("drop", "Dropout");
  {
    const auto list = builder.in("h", "ModuleList");
    for (std::int64_t layer = 0; layer < gpt.layers; ++layer) write_block(builder, gpt, layer);
  }
  builder.layer_norm("ln_f", gpt.attention.hidden);
  return embedding;
}

void fill_shape(const ConfigReader& config, const Gpt2& gpt, TransformerShape& shape) {
  set_sizes(shape, gpt.attention, gpt.layers, gpt.intermediate, gpt.vocabulary);
  shape.max_positions = gpt.positions;
  shape.norm = NormKind::layer_norm;
  shape.norm_epsilon = config.fraction({"layer_norm_epsilon"}, 1e-5);
  shape.position = PositionKind::learned;
  shape.gated_mlp = false;
  shape.tied_embeddings = gpt.tied;
  shape.attention_dropout = config.fraction({"attn_pdrop"}, 0.1);
  shape.hidden_dropout = config.fraction({"resid_pdrop"}, 0.1);
  shape.embedding_dropout = config.fraction({"embd_pdrop"}, 0.1);
}

}  // namespace

Model build_gpt2(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  const Gpt2 gpt = read_gpt2(input);
  TransformerShape shape;
  fill_shape(config, gpt, shape);
  const Decoder decoder = {.classes = "GPT2",
                           .implementation_family = "gpt2",
                           .activation = gpt.activation,
                           .language_suffix = "LMHeadModel"};
  return decoder_model(input, shape, decoder, [&](ModelBuilder& b) { return write_trunk(b, gpt); });
}

}  // namespace zeroplan::families
