// Phi-1, Phi-1.5 and Phi-2, for litgpt: Hugging Face's class is recorded. Defaults:
// transformers 4.51.3 configuration_phi.py.
#include "model/families/family.hpp"

namespace zeroplan::families {

namespace {

struct Phi {
  AttentionSizes attention;
  std::int64_t vocabulary = 0;
  std::int64_t layers = 0;
  std::int64_t intermediate = 0;
  bool query_key_norm = false;
  bool tied = false;
  Activation activation;
};

Phi read_phi(const ConfigReader& config) {
  Phi phi;
  phi.attention = read_plain_attention(config, {"hidden_size"}, 2048, {"num_attention_heads"}, 32);
  phi.attention.kv_heads =
      config.derived({"num_key_value_heads"}, phi.attention.heads, SizeKind::heads);
  config.must_divide(
      phi.attention.kv_heads, {"num_key_value_heads"}, phi.attention.heads, "num_attention_heads");
  phi.vocabulary = config.core({"vocab_size"}, 51200, SizeKind::vocabulary);
  phi.layers = config.core({"num_hidden_layers"}, 24, SizeKind::layers);
  phi.intermediate = config.core({"intermediate_size"}, 8192, SizeKind::width);
  phi.query_key_norm = config.flag({"qk_layernorm"}, false);
  phi.tied = config.flag({"tie_word_embeddings"}, false);
  phi.activation = activation_of(config.text({"hidden_act"}, "gelu_new"));
  return phi;
}

void write_layer(ModelBuilder& builder, const Phi& phi, std::int64_t layer) {
  const AttentionSizes& sizes = phi.attention;
  const std::int64_t keys = sizes.kv_heads * sizes.head_dim;
  const auto scope = builder.in(layer, "PhiDecoderLayer");
  {
    const auto attention = builder.in("self_attn", "PhiAttention");
    builder.linear("q_proj", sizes.hidden, sizes.hidden, true);
    builder.linear("k_proj", sizes.hidden, keys, true);
    builder.linear("v_proj", sizes.hidden, keys, true);
    builder.linear("dense", sizes.hidden, sizes.hidden, true);
    if (phi.query_key_norm) {
      builder.layer_norm("q_layernorm", sizes.head_dim);
      builder.layer_norm("k_layernorm", sizes.head_dim);
    }
  }
  {
    const auto mlp = builder.in("mlp", "PhiMLP");
    builder.leaf("activation_fn", phi.activation.class_name);
    builder.linear("fc1", sizes.hidden, phi.intermediate, true);
    builder.linear("fc2", phi.intermediate, sizes.hidden, true);
  }
  builder.layer_norm("input_layernorm", sizes.hidden);
  builder.leaf("resid_dropout", "Dropout");
}

int write_trunk(ModelBuilder& builder, const Phi& phi) {
  const int embedding = builder.embedding("embed_tokens", phi.vocabulary, phi.attention.hidden);
  {
    const auto list = builder.in("layers", "ModuleList");
    for (std::int64_t layer = 0; layer < phi.layers; ++layer) write_layer(builder, phi, layer);
  }
  builder.leaf("rotary_emb", "PhiRotaryEmbedding");
  builder.leaf("embed_dropout", "Dropout");
  builder.layer_norm("final_layernorm", phi.attention.hidden);
  return embedding;
}

void fill_shape(const ConfigReader& config, const Phi& phi, TransformerShape& shape) {
  set_sizes(shape, phi.attention, phi.layers, phi.intermediate, phi.vocabulary);
  shape.max_positions = config.derived({"max_position_embeddings"}, 2048, SizeKind::positions);
  shape.norm = NormKind::layer_norm;
  shape.gated_mlp = false;
  shape.parallel_residual = true;
  shape.tied_embeddings = phi.tied;
  const double rotated = config.fraction({"partial_rotary_factor"}, 0.5);
  shape.rotary_dim = rotated_elements(config, phi.attention, {"partial_rotary_factor"}, rotated);
  shape.attention_dropout = config.fraction({"attention_dropout"}, 0.0);
  shape.hidden_dropout = config.fraction({"resid_pdrop"}, 0.0);
  shape.embedding_dropout = config.fraction({"embd_pdrop"}, 0.0);
}

}  // namespace

Model build_phi(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  constexpr std::array kHeads = {
      Head::causal_lm, Head::base, Head::sequence_classification, Head::token_classification};
  const Head head = head_of(input, kHeads, Head::causal_lm);
  const Phi phi = read_phi(config);
  TransformerShape shape;
  fill_shape(config, phi, shape);
  const Decoder decoder = {.classes = "Phi",
                           .attribute = "model",
                           .implementation_family = "phi",
                           .head = head,
                           .top = {.hidden = phi.attention.hidden,
                                   .vocabulary = phi.vocabulary,
                                   .tied = phi.tied,
                                   .bias = true,
                                   .tokens = "score"},
                           .activation = phi.activation};
  Model model =
      decoder_model(config, shape, decoder, [&](ModelBuilder& b) { return write_trunk(b, phi); });
  if (phi.query_key_norm) not_planned(model, "qk_layernorm is not modelled");
  return model;
}

}  // namespace zeroplan::families
