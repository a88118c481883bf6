// BLOOM, for Megatron and the embedded runtime: Hugging Face's class is recorded. Defaults:
// transformers 4.51.3 configuration_bloom.py.
#include "model/families/family.hpp"

namespace zeroplan::families {

namespace {

struct Bloom {
  AttentionSizes attention;
  std::int64_t vocabulary = 0;
  std::int64_t layers = 0;
  bool tied = true;
};

void write_block(ModelBuilder& builder, const Bloom& bloom, std::int64_t layer) {
  const std::int64_t hidden = bloom.attention.hidden;
  const auto scope = builder.in(layer, "BloomBlock");
  builder.layer_norm("input_layernorm", hidden);
  {
    const auto attention = builder.in("self_attention", "BloomAttention");
    builder.linear("query_key_value", hidden, 3 * hidden, true);
    builder.linear("dense", hidden, hidden, true);
    builder.leaf("attention_dropout", "Dropout");
  }
  builder.layer_norm("post_attention_layernorm", hidden);
  const auto mlp = builder.in("mlp", "BloomMLP");
  builder.linear("dense_h_to_4h", hidden, 4 * hidden, true);
  builder.leaf("gelu_impl", "BloomGelu");
  builder.linear("dense_4h_to_h", 4 * hidden, hidden, true);
}

int write_trunk(ModelBuilder& builder, const Bloom& bloom) {
  const std::int64_t hidden = bloom.attention.hidden;
  const int embedding = builder.embedding("word_embeddings", bloom.vocabulary, hidden);
  builder.layer_norm("word_embeddings_layernorm", hidden);
  {
    const auto list = builder.in("h", "ModuleList");
    for (std::int64_t layer = 0; layer < bloom.layers; ++layer) write_block(builder, bloom, layer);
  }
  builder.layer_norm("ln_f", hidden);
  return embedding;
}

}  // namespace

Model build_bloom(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  Bloom bloom;
  bloom.attention = read_plain_attention(
      config, {"hidden_size", "n_embed", "n_embd"}, 64, {"n_head", "num_attention_heads"}, 8);
  bloom.vocabulary = config.core({"vocab_size"}, 250880, SizeKind::vocabulary);
  bloom.layers = config.core({"n_layer", "num_hidden_layers"}, 2, SizeKind::layers);
  bloom.tied = config.flag({"tie_word_embeddings"}, true);
  TransformerShape shape;
  set_sizes(shape, bloom.attention, bloom.layers, 4 * bloom.attention.hidden, bloom.vocabulary);
  shape.max_positions = 0;  // ALiBi; seq_length of the config is what it was trained on
  shape.norm = NormKind::layer_norm;
  shape.norm_epsilon = config.fraction({"layer_norm_epsilon"}, 1e-5);
  shape.position = PositionKind::alibi;
  shape.gated_mlp = false;
  shape.tied_embeddings = bloom.tied;
  shape.attention_dropout = config.fraction({"attention_dropout"}, 0.0);
  shape.hidden_dropout = config.fraction({"hidden_dropout"}, 0.0);
  Decoder
      decoder;  // member by member: g++ 12 warns of an uninitialised name in an initialiser list
  decoder.classes = "Bloom";
  decoder.implementation_family = "bloom";
  decoder.activation = {ActivationFunction::gelu_tanh, "BloomGelu"};
  return decoder_model(
      input, shape, decoder, [&](ModelBuilder& b) { return write_trunk(b, bloom); });
}

}  // namespace zeroplan::families
