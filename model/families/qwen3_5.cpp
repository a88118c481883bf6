// Qwen3-Next and the text models of Qwen3.5: gated linear attention in three of four layers, gated
// full attention in the fourth. Layers for multi-token prediction are left out, as transformers
// leaves them out.
// Defaults: transformers 5.17 configuration_qwen3_5.py, configuration_qwen3_5_moe.py and
// configuration_qwen3_next.py.
#include <algorithm>
#include <array>
#include <string>

#include "model/families/text_decoder.hpp"

namespace zeroplan::families {

namespace {

// What the configuration classes differ in.
struct Traits {
  std::string_view model_type;
  std::string_view classes;
  std::string_view trunk_suffix;
  std::string_view rotary_class;
  bool fused_projections;  // in_proj_qkvz and in_proj_ba instead of four
  std::int64_t vocabulary, hidden, intermediate, layers, kv_heads;
  std::int64_t experts, experts_per_token;  // 0: dense
};

constexpr std::array<Traits, 3> kQwen35Traits = {{
    {.model_type = "qwen3_5_text",
     .classes = "Qwen3_5",
     .trunk_suffix = "TextModel",
     .rotary_class = "Qwen3_5TextRotaryEmbedding",
     .fused_projections = false,
     .vocabulary = 248320,
     .hidden = 4096,
     .intermediate = 12288,
     .layers = 32,
     .kv_heads = 4,
     .experts = 0,
     .experts_per_token = 0},
    {.model_type = "qwen3_5_moe_text",
     .classes = "Qwen3_5Moe",
     .trunk_suffix = "TextModel",
     .rotary_class = "Qwen3_5MoeTextRotaryEmbedding",
     .fused_projections = false,
     .vocabulary = 248320,
     .hidden = 2048,
     .intermediate = 0,
     .layers = 40,
     .kv_heads = 2,
     .experts = 256,
     .experts_per_token = 8},
    {.model_type = "qwen3_next",
     .classes = "Qwen3Next",
     .trunk_suffix = "Model",
     .rotary_class = "Qwen3NextRotaryEmbedding",
     .fused_projections = true,
     .vocabulary = 151936,
     .hidden = 2048,
     .intermediate = 5632,
     .layers = 48,
     .kv_heads = 2,
     .experts = 512,
     .experts_per_token = 10},
}};

struct LinearAttention {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t kernel = 0;  // positions that its convolution sees
};

struct Hybrid {
  const Traits* traits = nullptr;
  AttentionSizes attention;
  LinearAttention linear;
  std::int64_t vocabulary = 0;
  std::int64_t layers = 0;
  std::int64_t intermediate = 0;
  ExpertShape experts;
  std::vector<bool> full;    // of each layer: full attention
  std::vector<bool> sparse;  // of each layer: has experts
  bool attention_bias = false;
  bool tied = false;
  std::string activation_class;
};

std::string name_of(const Hybrid& model, std::string_view what) {
  return std::string(model.traits->classes) + std::string(what);
}

void read_attention(const ConfigReader& config, Hybrid& read) {
  AttentionSizes& sizes = read.attention;
  sizes.hidden = config.core({"hidden_size"}, read.traits->hidden, SizeKind::width);
  sizes.heads = config.core({"num_attention_heads"}, 16, SizeKind::heads);
  sizes.kv_heads = config.size({"num_key_value_heads"}, read.traits->kv_heads, SizeKind::heads);
  sizes.head_dim = config.size({"head_dim"}, 256, SizeKind::width);
  config.must_divide(sizes.kv_heads, {"num_key_value_heads"}, sizes.heads, "num_attention_heads");
  LinearAttention& linear = read.linear;
  linear.key_heads = config.size({"linear_num_key_heads"}, 16, SizeKind::heads);
  linear.value_heads = config.size({"linear_num_value_heads"}, 32, SizeKind::heads);
  linear.key_dim = config.size({"linear_key_head_dim"}, 128, SizeKind::width);
  linear.value_dim = config.size({"linear_value_head_dim"}, 128, SizeKind::width);
  linear.kernel = config.size({"linear_conv_kernel_dim"}, 4, SizeKind::width);
  config.must_divide(
      linear.key_heads, {"linear_num_key_heads"}, linear.value_heads, "linear_num_value_heads");
}

void read_layers(const ConfigReader& config, Hybrid& read) {
  const auto layers = static_cast<std::size_t>(read.layers);
  const std::vector<std::string> types = config.texts({"layer_types"});
  const std::int64_t interval = config.derived({"full_attention_interval"}, 4, SizeKind::layers);
  const std::int64_t step = config.derived({"decoder_sparse_step"}, 1, SizeKind::layers);
  const std::vector<std::int64_t> dense = config.integers({"mlp_only_layers"});
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const auto number = static_cast<std::int64_t>(layer);
    read.full.push_back(layer < types.size() ? types[layer] == "full_attention"
                                             : (number + 1) % interval == 0);
    const bool listed = std::find(dense.begin(), dense.end(), number) != dense.end();
    read.sparse.push_back(read.experts.experts > 0 && !listed && (number + 1) % step == 0);
  }
}

void read_experts(const ConfigReader& config, Hybrid& read) {
  if (read.traits->experts == 0) return;
  ExpertShape& experts = read.experts;
  experts.experts = config.size({"num_experts"}, read.traits->experts, SizeKind::experts);
  experts.experts_per_token =
      config.size({"num_experts_per_tok"}, read.traits->experts_per_token, SizeKind::experts);
  check_experts_per_token(config, experts.experts_per_token, experts.experts);
  experts.intermediate = config.size({"moe_intermediate_size"}, 512, SizeKind::width);
  experts.shared_intermediate =
      config.size({"shared_expert_intermediate_size"}, 512, SizeKind::width);
  experts.fused = true;
}

Hybrid read_hybrid(const ConfigReader& config, const Traits& traits) {
  Hybrid read;
  read.traits = &traits;
  read_attention(config, read);
  read.layers = config.core({"num_hidden_layers"}, traits.layers, SizeKind::layers);
  read.vocabulary = config.core({"vocab_size"}, traits.vocabulary, SizeKind::vocabulary);
  read_experts(config, read);
  read_layers(config, read);
  const bool all_sparse =
      std::find(read.sparse.begin(), read.sparse.end(), false) == read.sparse.end();
  if (!all_sparse) {
    read.intermediate = config.core({"intermediate_size"}, traits.intermediate, SizeKind::width);
  }
  read.attention_bias = config.flag({"attention_bias"}, false);
  read.tied = config.flag({"tie_word_embeddings"}, false);
  return read;
}

void write_full_attention(ModelBuilder& builder, const Hybrid& model) {
  const AttentionSizes& sizes = model.attention;
  const std::int64_t queries = sizes.heads * sizes.head_dim;
  const std::int64_t keys = sizes.kv_heads * sizes.head_dim;
  const auto scope = builder.in("self_attn", name_of(model, "Attention"));
  builder.linear("q_proj", sizes.hidden, 2 * queries, model.attention_bias);  // and its gate
  builder.linear("k_proj", sizes.hidden, keys, model.attention_bias);
  builder.linear("v_proj", sizes.hidden, keys, model.attention_bias);
  builder.linear("o_proj", queries, sizes.hidden, model.attention_bias);
  builder.norm("q_norm", sizes.head_dim, name_of(model, "RMSNorm"));
  builder.norm("k_norm", sizes.head_dim, name_of(model, "RMSNorm"));
}

void write_linear_attention(ModelBuilder& builder, const Hybrid& model) {
  const LinearAttention& linear = model.linear;
  const std::int64_t hidden = model.attention.hidden;
  const std::int64_t values = linear.value_heads * linear.value_dim;
  const std::int64_t mixed = 2 * linear.key_heads * linear.key_dim + values;
  const auto scope = builder.in("linear_attn", name_of(model, "GatedDeltaNet"));
  builder.parameter("dt_bias", {linear.value_heads});
  builder.parameter("A_log", {linear.value_heads});
  {
    const auto conv = builder.in("conv1d", "Conv1d");
    builder.parameter("weight", {mixed, 1, linear.kernel});
  }
  if (model.traits->fused_projections) {
    builder.linear("in_proj_qkvz", hidden, mixed + values, false);
    builder.linear("in_proj_ba", hidden, 2 * linear.value_heads, false);
  }
  builder.norm("norm", linear.value_dim, name_of(model, "RMSNormGated"));
  builder.linear("out_proj", values, hidden, false);
  if (model.traits->fused_projections) return;
  builder.linear("in_proj_qkv", hidden, mixed, false);
  builder.linear("in_proj_z", hidden, values, false);
  builder.linear("in_proj_b", hidden, linear.value_heads, false);
  builder.linear("in_proj_a", hidden, linear.value_heads, false);
}

void write_gated(ModelBuilder& builder, const Hybrid& model, std::int64_t width) {
  builder.linear("gate_proj", model.attention.hidden, width, false);
  builder.linear("up_proj", model.attention.hidden, width, false);
  builder.linear("down_proj", width, model.attention.hidden, false);
  builder.leaf("act_fn", model.activation_class);
}

void write_experts(ModelBuilder& builder, const Hybrid& model) {
  const ExpertShape& shape = model.experts;
  const std::int64_t hidden = model.attention.hidden;
  const auto scope = builder.in("mlp", name_of(model, "SparseMoeBlock"));
  builder.linear("gate", hidden, shape.experts, false, name_of(model, "TopKRouter"));
  {
    const auto experts = builder.in("experts", name_of(model, "Experts"));
    const auto routing = builder.routed(shape.experts_per_token, shape.experts);
    builder.parameter("gate_up_proj", {shape.experts, 2 * shape.intermediate, hidden});
    builder.parameter("down_proj", {shape.experts, hidden, shape.intermediate});
    builder.leaf("act_fn", model.activation_class);
  }
  {
    const auto shared = builder.in("shared_expert", name_of(model, "MLP"));
    write_gated(builder, model, shape.shared_intermediate);
  }
  builder.linear("shared_expert_gate", hidden, 1, false);
}

void write_layer(ModelBuilder& builder, const Hybrid& model, std::size_t layer) {
  const auto scope = builder.in(static_cast<std::int64_t>(layer), name_of(model, "DecoderLayer"));
  if (model.full[layer]) {
    write_full_attention(builder, model);
  } else {
    write_linear_attention(builder, model);
  }
  if (model.sparse[layer]) {
    write_experts(builder, model);
  } else {
    const auto mlp = builder.in("mlp", name_of(model, "MLP"));
    write_gated(builder, model, model.intermediate);
  }
  builder.norm("input_layernorm", model.attention.hidden, name_of(model, "RMSNorm"));
  builder.norm("post_attention_layernorm", model.attention.hidden, name_of(model, "RMSNorm"));
}

int write_trunk(ModelBuilder& builder, const Hybrid& model) {
  const int embedding = builder.embedding("embed_tokens", model.vocabulary, model.attention.hidden);
  {
    const auto list = builder.in("layers", "ModuleList");
    for (std::size_t layer = 0; layer < model.full.size(); ++layer) {
      write_layer(builder, model, layer);
    }
  }
  builder.norm("norm", model.attention.hidden, name_of(model, "RMSNorm"));
  builder.leaf("rotary_emb", model.traits->rotary_class);
  return embedding;
}

// partial_rotary_factor, or where transformers 5 writes it.
double rotated_share(const ConfigReader& config) {
  const Json* rope = config.find({"rope_parameters"});
  const Json* inside =
      rope != nullptr && rope->is_object() ? rope->find("partial_rotary_factor") : nullptr;
  const bool said = inside != nullptr && inside->is_number() && inside->as_number() > 0.0 &&
                    inside->as_number() <= 1.0;
  return config.fraction({"partial_rotary_factor"}, said ? inside->as_number() : 0.25);
}

void fill_shape(const ConfigReader& config, const Hybrid& model, TransformerShape& shape) {
  set_sizes(shape, model.attention, model.layers, model.intermediate, model.vocabulary);
  shape.max_positions = config.derived({"max_position_embeddings"}, 32768, SizeKind::positions);
  shape.tied_embeddings = model.tied;
  shape.rotary_dim =
      rotated_elements(config, model.attention, {"partial_rotary_factor"}, rotated_share(config));
  shape.norm_epsilon = config.fraction({"rms_norm_eps"}, 1e-6);
  shape.attention_dropout = config.fraction({"attention_dropout"}, 0.0);
  shape.experts = model.experts;
}

}  // namespace

Model build_hybrid(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  const auto row =
      std::find_if(kQwen35Traits.begin(), kQwen35Traits.end(), [&](const Traits& each) {
        return each.model_type == input.model_type;
      });
  constexpr std::array<Head, 1> kHeads = {Head::causal_lm};
  head_of(input, kHeads, Head::causal_lm);
  const Activation activation = activation_of(config.text({"hidden_act"}, "silu"));
  Hybrid read = read_hybrid(config, *row);
  read.activation_class = activation_class_5(activation);
  TransformerShape shape;
  fill_shape(config, read, shape);
  const TextDecoder decoder = {
      .classes = row->classes,
      .trunk_class = std::string(row->classes) + std::string(row->trunk_suffix),
      .implementation_family = "hybrid",
      .activation = activation};
  Model model = text_decoder_model(
      config, shape, decoder, [&](ModelBuilder& b) { return write_trunk(b, read); });
  // The forward description reads the sizes of heads from the parameters, which say one width.
  if (read.linear.key_dim != read.linear.value_dim && model.planned) {
    not_planned(model, "linear attention whose keys and values differ in width is not modelled");
  }
  return model;
}

}  // namespace zeroplan::families
