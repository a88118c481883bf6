// gpt-oss (20b, 120b): attention with a learned sink a head, every second layer with a window, and
// experts with biases in four parameters for all of them, in every release that has the class.
// Defaults: transformers 5.17 configuration_gpt_oss.py; tensors: modeling_gpt_oss.py.
#include "model/families/family.hpp"

namespace zeroplan::families {

namespace {

struct GptOss {
  AttentionSizes attention;
  std::int64_t vocabulary = 0;
  std::int64_t layers = 0;
  std::int64_t intermediate = 0;
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  bool attention_bias = true;
  bool tied = false;
};

GptOss read_gpt_oss(const ConfigReader& config) {
  GptOss read;
  AttentionSizes& sizes = read.attention;
  sizes.hidden = config.core({"hidden_size"}, 2880, SizeKind::width);
  sizes.heads = config.core({"num_attention_heads"}, 64, SizeKind::heads);
  sizes.kv_heads = config.size({"num_key_value_heads"}, 8, SizeKind::heads);
  sizes.head_dim = config.size({"head_dim"}, 64, SizeKind::width);
  config.must_divide(sizes.kv_heads, {"num_key_value_heads"}, sizes.heads, "num_attention_heads");
  read.layers = config.core({"num_hidden_layers"}, 36, SizeKind::layers);
  read.vocabulary = config.core({"vocab_size"}, 201088, SizeKind::vocabulary);
  read.intermediate = config.core({"intermediate_size"}, 2880, SizeKind::width);
  read.experts = config.size({"num_local_experts", "num_experts"}, 128, SizeKind::experts);
  read.experts_per_token = config.size({"num_experts_per_tok"}, 4, SizeKind::experts);
  check_experts_per_token(config, read.experts_per_token, read.experts);
  read.attention_bias = config.flag({"attention_bias"}, true);
  read.tied = config.flag({"tie_word_embeddings"}, false);
  return read;
}

void write_experts(ModelBuilder& builder, const GptOss& model) {
  const std::int64_t hidden = model.attention.hidden;
  const std::int64_t width = model.intermediate;
  const auto scope = builder.in("mlp", "GptOssMLP");
  builder.linear("router", hidden, model.experts, true, "GptOssTopKRouter");
  const auto experts = builder.in("experts", "GptOssExperts");
  const auto routing = builder.routed(model.experts_per_token, model.experts);
  builder.parameter("gate_up_proj", {model.experts, hidden, 2 * width});
  builder.parameter("gate_up_proj_bias", {model.experts, 2 * width});
  builder.parameter("down_proj", {model.experts, width, hidden});
  builder.parameter("down_proj_bias", {model.experts, hidden});
}

void write_layer(ModelBuilder& builder, const GptOss& model, std::int64_t layer) {
  const AttentionSizes& sizes = model.attention;
  const std::int64_t queries = sizes.heads * sizes.head_dim;
  const std::int64_t keys = sizes.kv_heads * sizes.head_dim;
  const auto scope = builder.in(layer, "GptOssDecoderLayer");
  {
    const auto attention = builder.in("self_attn", "GptOssAttention");
    builder.parameter("sinks", {sizes.heads});
    builder.linear("q_proj", sizes.hidden, queries, model.attention_bias);
    builder.linear("k_proj", sizes.hidden, keys, model.attention_bias);
    builder.linear("v_proj", sizes.hidden, keys, model.attention_bias);
    builder.linear("o_proj", queries, sizes.hidden, model.attention_bias);
  }
  write_experts(builder, model);
  builder.norm("input_layernorm", sizes.hidden, "GptOssRMSNorm");
  builder.norm("post_attention_layernorm", sizes.hidden, "GptOssRMSNorm");
}

int write_trunk(ModelBuilder& builder, const GptOss& model) {
  const int embedding = builder.embedding("embed_tokens", model.vocabulary, model.attention.hidden);
  {
    const auto list = builder.in("layers", "ModuleList");
    for (std::int64_t layer = 0; layer < model.layers; ++layer) write_layer(builder, model, layer);
  }
  builder.norm("norm", model.attention.hidden, "GptOssRMSNorm");
  builder.leaf("rotary_emb", "GptOssRotaryEmbedding");
  return embedding;
}

void fill_shape(const ConfigReader& config, const GptOss& model, TransformerShape& shape) {
  set_sizes(shape, model.attention, model.layers, model.intermediate, model.vocabulary);
  shape.max_positions = config.derived({"max_position_embeddings"}, 131072, SizeKind::positions);
  shape.tied_embeddings = model.tied;
  shape.attention_sinks = true;
  shape.rotary_dim = rotated_elements(config, model.attention, {"partial_rotary_factor"}, 1.0);
  shape.norm_epsilon = config.fraction({"rms_norm_eps"}, 1e-5);
  shape.attention_dropout = config.fraction({"attention_dropout"}, 0.0);
  shape.experts = {.experts = model.experts,
                   .experts_per_token = model.experts_per_token,
                   .intermediate = model.intermediate,
                   .fused = true};
}

}  // namespace

Model build_gpt_oss(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  const Head head = head_of(input, kTextHeads, Head::causal_lm);
  const GptOss read = read_gpt_oss(config);
  TransformerShape shape;
  fill_shape(config, read, shape);
  const Decoder decoder = {.classes = "GptOss",
                           .attribute = "model",
                           .implementation_family = "gpt_oss",
                           .head = head,
                           .top = {.hidden = read.attention.hidden,
                                   .vocabulary = read.vocabulary,
                                   .tied = read.tied,
                                   .tokens = "score"},
                           .activation = activation_of("silu")};
  return decoder_model(
      config, shape, decoder, [&](ModelBuilder& b) { return write_trunk(b, read); });
}

}  // namespace zeroplan::families
