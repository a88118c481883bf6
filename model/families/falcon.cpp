// Falcon, for litgpt: Hugging Face's class is recorded. Defaults: transformers 4.51.3
// configuration_falcon.py.
#include "model/families/family.hpp"

namespace zeroplan::families {

namespace {

struct Falcon {
  AttentionSizes attention;
  std::int64_t vocabulary = 0;
  std::int64_t layers = 0;
  std::int64_t intermediate = 0;
  std::int64_t qkv_width = 0;
  bool new_decoder = false;
  bool parallel = true;
  std::int64_t parallel_norms = 1;  // layer norms of a parallel block
  bool bias = false;
  bool alibi = false;
  bool tied = true;
  Activation activation;
};

Falcon read_falcon(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  Falcon falcon;
  AttentionSizes& sizes = falcon.attention;
  sizes = read_plain_attention(config, {"hidden_size"}, 4544, {"num_attention_heads"}, 71);
  falcon.vocabulary = config.core({"vocab_size"}, 65024, SizeKind::vocabulary);
  falcon.layers = config.core({"num_hidden_layers"}, 32, SizeKind::layers);
  falcon.intermediate = config.derived({"ffn_hidden_size"}, 4 * sizes.hidden, SizeKind::width);
  falcon.new_decoder = config.flag({"new_decoder_architecture"}, false, true);
  const bool multi_query =
      config.flag({"multi_query"}, true, !falcon.new_decoder) && !falcon.new_decoder;
  if (falcon.new_decoder) {
    sizes.kv_heads = config.derived({"num_kv_heads"}, sizes.heads, SizeKind::heads);
    config.must_divide(sizes.kv_heads, {"num_kv_heads"}, sizes.heads, "num_attention_heads");
  } else if (multi_query) {
    sizes.kv_heads = 1;
  }
  falcon.qkv_width = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim;
  falcon.parallel = config.flag({"parallel_attn"}, true);
  falcon.parallel_norms =
      config.derived({"num_ln_in_parallel_attn"}, falcon.new_decoder ? 2 : 1, SizeKind::layers);
  falcon.bias = config.flag({"bias"}, false);
  falcon.alibi = config.flag({"alibi"}, false);
  falcon.tied = config.flag({"tie_word_embeddings"}, true);
  falcon.activation = activation_of(config.text({"activation"}, "gelu"));
  return falcon;
}

void write_layer(ModelBuilder& builder, const Falcon& falcon, std::int64_t layer) {
  const std::int64_t hidden = falcon.attention.hidden;
  const auto scope = builder.in(layer, "FalconDecoderLayer");
  {
    const auto attention = builder.in("self_attention", "FalconAttention");
    builder.linear("query_key_value", hidden, falcon.qkv_width, falcon.bias, "FalconLinear");
    builder.linear("dense", hidden, hidden, falcon.bias, "FalconLinear");
    builder.leaf("attention_dropout", "Dropout");
    if (!falcon.alibi) builder.leaf("rotary_emb", "FalconRotaryEmbedding");
  }
  {
    const auto mlp = builder.in("mlp", "FalconMLP");
    builder.linear("dense_h_to_4h", hidden, falcon.intermediate, falcon.bias, "FalconLinear");
    builder.leaf("act", falcon.activation.class_name);
    builder.linear("dense_4h_to_h", falcon.intermediate, hidden, falcon.bias, "FalconLinear");
  }
  if (!falcon.parallel) {
    builder.layer_norm("post_attention_layernorm", hidden);
    builder.layer_norm("input_layernorm", hidden);
  } else if (falcon.parallel_norms == 2) {
    builder.layer_norm("ln_attn", hidden);
    builder.layer_norm("ln_mlp", hidden);
  } else {
    builder.layer_norm("input_layernorm", hidden);
  }
}

int write_trunk(ModelBuilder& builder, const Falcon& falcon) {
  const std::int64_t hidden = falcon.attention.hidden;
  const int embedding = builder.embedding("word_embeddings", falcon.vocabulary, hidden);
  {
    const auto list = builder.in("h", "ModuleList");
    for (std::int64_t layer = 0; layer < falcon.layers; ++layer) {
      write_layer(builder, falcon, layer);
    }
  }
  builder.layer_norm("ln_f", hidden);
  builder.leaf("rotary_emb", "FalconRotaryEmbedding");
  return embedding;
}

void fill_shape(const ConfigReader& config, const Falcon& falcon, TransformerShape& shape) {
  set_sizes(shape, falcon.attention, falcon.layers, falcon.intermediate, falcon.vocabulary);
  shape.max_positions =
      falcon.alibi ? 0 : config.derived({"max_position_embeddings"}, 2048, SizeKind::positions);
  shape.norm = NormKind::layer_norm;
  shape.position = falcon.alibi ? PositionKind::alibi : PositionKind::rotary;
  shape.rotary_dim = falcon.alibi ? 0 : rotated_elements(config, falcon.attention, {}, 1.0);
  shape.gated_mlp = false;
  shape.parallel_residual = falcon.parallel || falcon.new_decoder;
  shape.tied_embeddings = falcon.tied;
  shape.attention_dropout = config.fraction({"attention_dropout"}, 0.0);
  shape.hidden_dropout = config.fraction({"hidden_dropout"}, 0.0);
}

}  // namespace

Model build_falcon(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  const Head head = head_of(input, kDecoderHeads, Head::causal_lm);
  const Falcon falcon = read_falcon(input);
  TransformerShape shape;
  fill_shape(config, falcon, shape);
  const Decoder decoder = {.classes = "Falcon",
                           .attribute = "transformer",
                           .implementation_family = "falcon",
                           .head = head,
                           .top = {.hidden = falcon.attention.hidden,
                                   .vocabulary = falcon.vocabulary,
                                   .tied = falcon.tied},
                           .activation = falcon.activation};
  return decoder_model(
      config, shape, decoder, [&](ModelBuilder& b) { return write_trunk(b, falcon); });
}

}  // namespace zeroplan::families
