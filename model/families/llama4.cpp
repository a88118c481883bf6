// The text model of Llama 4 (Scout, Maverick): every layer, or every second, has experts beside a
// shared one; every fourth turns no positions and sees all, the others see their chunk.
// Defaults: transformers 5.17 configuration_llama4.py, Llama4TextConfig.
#include <algorithm>
#include <array>
#include <string>

#include "model/families/text_decoder.hpp"

namespace zeroplan::families {

namespace {

struct Llama4 {
  AttentionSizes attention;
  std::int64_t vocabulary = 0;
  std::int64_t layers = 0;
  std::int64_t dense_intermediate = 0;
  ExpertShape experts;
  std::vector<bool> sparse;   // of each layer: has experts
  std::vector<bool> rotated;  // of each layer: turns positions
  bool attention_bias = false;
  bool head_norms = false;
  bool tied = false;
  std::string activation_class;
};

AttentionSizes read_attention(const ConfigReader& config) {
  AttentionSizes sizes;
  sizes.hidden = config.core({"hidden_size"}, 5120, SizeKind::width);
  sizes.heads = config.core({"num_attention_heads"}, 40, SizeKind::heads);
  sizes.kv_heads = config.size({"num_key_value_heads"}, 8, SizeKind::heads);
  sizes.head_dim = config.size({"head_dim"}, 128, SizeKind::width);
  config.must_divide(sizes.kv_heads, {"num_key_value_heads"}, sizes.heads, "num_attention_heads");
  return sizes;
}

// moe_layers, else the last of every interleave_moe_layer_step layers.
std::vector<bool> sparse_layers(const ConfigReader& config, std::int64_t layers) {
  const std::int64_t step = config.derived({"interleave_moe_layer_step"}, 1, SizeKind::layers);
  const std::vector<std::int64_t> listed = config.integers({"moe_layers"});
  const bool has_list = config.find({"moe_layers"}) != nullptr;
  std::vector<bool> sparse;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const bool named = std::find(listed.begin(), listed.end(), layer) != listed.end();
    sparse.push_back(has_list ? named : (layer + 1) % step == 0);
  }
  return sparse;
}

// no_rope_layers has a 1 for each layer that turns positions; without it every
// no_rope_layer_interval-th does not.
std::vector<bool> rotated_layers(const ConfigReader& config, std::int64_t layers) {
  const std::int64_t interval = config.derived({"no_rope_layer_interval"}, 4, SizeKind::layers);
  const std::vector<std::int64_t> listed = config.integers({"no_rope_layers"});
  std::vector<bool> rotated;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const auto i = static_cast<std::size_t>(layer);
    rotated.push_back(i < listed.size() ? listed[i] != 0 : (layer + 1) % interval != 0);
  }
  return rotated;
}

Llama4 read_llama4(const ConfigReader& config) {
  Llama4 read;
  read.attention = read_attention(config);
  read.layers = config.core({"num_hidden_layers"}, 48, SizeKind::layers);
  read.vocabulary = config.core({"vocab_size"}, 202048, SizeKind::vocabulary);
  read.dense_intermediate = config.size({"intermediate_size_mlp"}, 16384, SizeKind::width);
  ExpertShape& experts = read.experts;
  experts.experts = config.size({"num_local_experts"}, 16, SizeKind::experts);
  experts.experts_per_token = config.size({"num_experts_per_tok"}, 1, SizeKind::experts);
  check_experts_per_token(config, experts.experts_per_token, experts.experts);
  experts.intermediate = config.core({"intermediate_size"}, 8192, SizeKind::width);
  experts.shared_intermediate = experts.intermediate;
  experts.fused = true;
  read.sparse = sparse_layers(config, read.layers);
  read.rotated = rotated_layers(config, read.layers);
  read.attention_bias = config.flag({"attention_bias"}, false);
  read.head_norms = config.flag({"use_qk_norm"}, true);
  read.tied = config.flag({"tie_word_embeddings"}, false);
  return read;
}

void write_attention(ModelBuilder& builder, const Llama4& model, bool rotated) {
  const AttentionSizes& sizes = model.attention;
  const std::int64_t queries = sizes.heads * sizes.head_dim;
  const std::int64_t keys = sizes.kv_heads * sizes.head_dim;
  const auto scope = builder.in("self_attn", "Llama4TextAttention");
  builder.linear("q_proj", sizes.hidden, queries, model.attention_bias);
  builder.linear("k_proj", sizes.hidden, keys, model.attention_bias);
  builder.linear("v_proj", sizes.hidden, keys, model.attention_bias);
  builder.linear("o_proj", queries, sizes.hidden, model.attention_bias);
  if (model.head_norms && rotated) builder.leaf("qk_norm", "Llama4TextL2Norm");
}

void write_mlp(ModelBuilder& builder, const Llama4& model, std::int64_t width) {
  builder.linear("gate_proj", model.attention.hidden, width, false);
  builder.linear("up_proj", model.attention.hidden, width, false);
  builder.linear("down_proj", width, model.attention.hidden, false);
  builder.leaf("activation_fn", model.activation_class);
}

void write_experts(ModelBuilder& builder, const Llama4& model) {
  const ExpertShape& shape = model.experts;
  const std::int64_t hidden = model.attention.hidden;
  const auto scope = builder.in("feed_forward", "Llama4TextMoe");
  {
    const auto experts = builder.in("experts", "Llama4TextExperts");
    const auto routing = builder.routed(shape.experts_per_token, shape.experts);
    builder.parameter("gate_up_proj", {shape.experts, hidden, 2 * shape.intermediate});
    builder.parameter("down_proj", {shape.experts, shape.intermediate, hidden});
    builder.leaf("act_fn", model.activation_class);
  }
  builder.linear("router", hidden, shape.experts, false, "Llama4Router");
  const auto shared = builder.in("shared_expert", "Llama4TextMLP");
  write_mlp(builder, model, shape.shared_intermediate);
}

void write_layer(ModelBuilder& builder, const Llama4& model, std::int64_t layer) {
  const auto i = static_cast<std::size_t>(layer);
  const auto scope = builder.in(layer, "Llama4TextDecoderLayer");
  write_attention(builder, model, model.rotated[i]);
  if (model.sparse[i]) {
    write_experts(builder, model);
  } else {
    const auto mlp = builder.in("feed_forward", "Llama4TextMLP");
    write_mlp(builder, model, model.dense_intermediate);
  }
  builder.norm("input_layernorm", model.attention.hidden, "Llama4TextRMSNorm");
  builder.norm("post_attention_layernorm", model.attention.hidden, "Llama4TextRMSNorm");
}

int write_trunk(ModelBuilder& builder, const Llama4& model) {
  const int embedding = builder.embedding("embed_tokens", model.vocabulary, model.attention.hidden);
  {
    const auto list = builder.in("layers", "ModuleList");
    for (std::int64_t layer = 0; layer < model.layers; ++layer) write_layer(builder, model, layer);
  }
  builder.norm("norm", model.attention.hidden, "Llama4TextRMSNorm");
  builder.leaf("rotary_emb", "Llama4TextRotaryEmbedding");
  return embedding;
}

void fill_shape(const ConfigReader& config, const Llama4& model, TransformerShape& shape) {
  set_sizes(shape, model.attention, model.layers, model.dense_intermediate, model.vocabulary);
  shape.max_positions = config.derived({"max_position_embeddings"}, 131072, SizeKind::positions);
  shape.tied_embeddings = model.tied;
  shape.rotary_dim = model.attention.head_dim;
  shape.norm_epsilon = config.fraction({"rms_norm_eps"}, 1e-5);
  shape.attention_dropout = config.fraction({"attention_dropout"}, 0.0);
  shape.experts = model.experts;
  shape.sliding_window = config.derived({"attention_chunk_size"}, 8192, SizeKind::positions);
  const std::vector<std::string> types = config.texts({"layer_types"});
  for (std::size_t i = 0; i < model.rotated.size(); ++i) {
    LayerAttention attention;
    attention.rotary = model.rotated[i];
    attention.sliding = i < types.size() ? types[i] == "chunked_attention" : attention.rotary;
    shape.layer_attention.push_back(attention);
  }
}

}  // namespace

Model build_llama4_text(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  constexpr std::array<Head, 1> kHeads = {Head::causal_lm};
  head_of(input, kHeads, Head::causal_lm);
  const Activation activation = activation_of(config.text({"hidden_act"}, "silu"));
  Llama4 read = read_llama4(config);
  read.activation_class = activation_class_5(activation);
  TransformerShape shape;
  fill_shape(config, read, shape);
  const TextDecoder decoder = {.classes = "Llama4",
                               .trunk_class = "Llama4TextModel",
                               .implementation_family = "llama4",
                               .activation = activation};
  Model model = text_decoder_model(
      config, shape, decoder, [&](ModelBuilder& b) { return write_trunk(b, read); });
  // A number in released files, which transformers 4 reads as true.
  const Json* tuning = config.find({"attn_temperature_tuning"});
  const bool untuned = tuning != nullptr && tuning->is_boolean() && !tuning->as_boolean();
  if (untuned && model.planned) {
    not_planned(model, "Llama 4 without attn_temperature_tuning is not modelled");
  }
  return model;
}

}  // namespace zeroplan::families
