// GPT-NeoX: GPT-NeoX-20B, Pythia, StableLM-alpha, RedPajama-INCITE, for litgpt:
// Hugging Face's class is recorded.
// Defaults: transformers 4.51.3 configuration_gpt_neox.py.
#include "model/families/family.hpp"

namespace zeroplan::families {

namespace {

struct NeoX {
  AttentionSizes attention;
  std::int64_t vocabulary = 0;
  std::int64_t layers = 0;
  std::int64_t intermediate = 0;
  bool attention_bias = true;
  bool tied = false;
  Activation activation;
};

NeoX read_neox(const ConfigReader& config) {
  NeoX neox;
  neox.attention = read_plain_attention(config, {"hidden_size"}, 6144, {"num_attention_heads"}, 64);
  neox.vocabulary = config.core({"vocab_size"}, 50432, SizeKind::vocabulary);
  neox.layers = config.core({"num_hidden_layers"}, 44, SizeKind::layers);
  neox.intermediate = config.core({"intermediate_size"}, 24576, SizeKind::width);
  neox.attention_bias = config.flag({"attention_bias"}, true);
  neox.tied = config.flag({"tie_word_embeddings"}, false);
  neox.activation = activation_of(config.text({"hidden_act"}, "gelu"));
  return neox;
}

void write_layer(ModelBuilder& builder, const NeoX& neox, std::int64_t layer) {
  const std::int64_t hidden = neox.attention.hidden;
  const auto scope = builder.in(layer, "GPTNeoXLayer");
  builder.layer_norm("input_layernorm", hidden);
  builder.layer_norm("post_attention_layernorm", hidden);
  builder.leaf("post_attention_dropout", "Dropout");
  builder.leaf("post_mlp_dropout", "Dropout");
  {
    const auto attention = builder.in("attention", "GPTNeoXAttention");
    builder.linear("query_key_value", hidden, 3 * hidden, neox.attention_bias);
    builder.linear("dense", hidden, hidden, neox.attention_bias);
  }
  const auto mlp = builder.in("mlp", "GPTNeoXMLP");
  builder.linear("dense_h_to_4h", hidden, neox.intermediate, true);
  builder.linear("dense_4h_to_h", neox.intermediate, hidden, true);
  builder.leaf("act", neox.activation.class_name);
}

int write_trunk(ModelBuilder& builder, const NeoX& neox) {
  const int embedding = builder.embedding("embed_in", neox.vocabulary, neox.attention.hidden);
  builder.leaf("emb_dropout", "Dropout");
  {
    const auto list = builder.in("layers", "ModuleList");
    for (std::int64_t layer = 0; layer < neox.layers; ++layer) write_layer(builder, neox, layer);
  }
  builder.layer_norm("final_layer_norm", neox.attention.hidden);
  builder.leaf("rotary_emb", "GPTNeoXRotaryEmbedding");
  return embedding;
}

void fill_shape(const ConfigReader& config, const NeoX& neox, TransformerShape& shape) {
  set_sizes(shape, neox.attention, neox.layers, neox.intermediate, neox.vocabulary);
  shape.max_positions = config.derived({"max_position_embeddings"}, 2048, SizeKind::positions);
  shape.norm = NormKind::layer_norm;
  shape.gated_mlp = false;
  shape.parallel_residual = config.flag({"use_parallel_residual"}, true);
  shape.tied_embeddings = neox.tied;
  const ConfigReader::Keys share_keys = {"rotary_pct", "partial_rotary_factor"};
  const double rotated = config.fraction(share_keys, 0.25);
  shape.rotary_dim = rotated_elements(config, neox.attention, share_keys, rotated);
  shape.attention_dropout = config.fraction({"attention_dropout"}, 0.0);
  shape.hidden_dropout = config.fraction({"hidden_dropout"}, 0.0);
  shape.embedding_dropout = shape.hidden_dropout;
}

}  // namespace

Model build_gpt_neox(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  const Head head = head_of(input, kDecoderHeads, Head::causal_lm);
  const NeoX neox = read_neox(config);
  TransformerShape shape;
  fill_shape(config, neox, shape);
  const Decoder decoder = {.classes = "GPTNeoX",
                           .attribute = "gpt_neox",
                           .implementation_family = "gpt_neox",
                           .head = head,
                           .top = {.hidden = neox.attention.hidden,
                                   .vocabulary = neox.vocabulary,
                                   .tied = neox.tied,
                                   .language = "embed_out"},
                           .activation = neox.activation};
  return decoder_model(
      config, shape, decoder, [&](ModelBuilder& b) { return write_trunk(b, neox); });
}

}  // namespace zeroplan::families
