// The text part of Qwen3.5 with its encoder, and Nemotron-H. Tensors: transformers 5.23
// modeling_qwen3_5.py, modeling_qwen3_5_moe.py, modeling_nemotron_h.py;
// layers for multi-token prediction are left out there.
#include "model/families/counted_hybrid.hpp"

#include <algorithm>

namespace zeroplan::families {

namespace {

void write_linear_attention(ModelBuilder& builder, const HybridDecoder& decoder) {
  const std::int64_t hidden = decoder.text.hidden;
  const std::int64_t mixed = 2 * decoder.key_width + decoder.value_width;
  const auto scope = builder.in("linear_attn", "GatedDeltaNet");
  builder.parameter("dt_bias", {decoder.value_heads});
  builder.parameter("A_log", {decoder.value_heads});
  write_convolution(builder, "conv1d", {mixed, 1, decoder.kernel}, false);
  builder.linear("in_proj_qkvz", hidden, mixed + decoder.value_width, false);
  builder.linear("in_proj_ba", hidden, 2 * decoder.value_heads, false);
  builder.norm("norm", decoder.value_dim, "RMSNormGated");
  builder.linear("out_proj", decoder.value_width, hidden, false);
}

std::vector<bool> full_layers(const ConfigReader& config, std::int64_t layers) {
  std::vector<bool> full(static_cast<std::size_t>(layers), false);
  const auto types = config.texts({"layer_types"});
  const std::int64_t interval = config.derived({"full_attention_interval"}, 4, SizeKind::layers);
  for (std::size_t layer = 0; layer < full.size(); ++layer) {
    full[layer] = layer < types.size() ? types[layer] == "full_attention"
                                       : (static_cast<std::int64_t>(layer) + 1) % interval == 0;
  }
  return full;
}

}  // namespace

HybridDecoder read_hybrid_decoder(const ConfigReader& config) {
  HybridDecoder decoder;
  decoder.text = read_text_sizes(config);
  decoder.attention = read_attention(config);
  decoder.attention.output_gate = true;
  decoder.attention.query_norm = decoder.attention.key_norm = decoder.attention.head_dim;
  decoder.full = full_layers(config, decoder.text.layers);
  const std::int64_t key_dim = config.size({"linear_key_head_dim"}, 128, SizeKind::width);
  decoder.value_dim = config.size({"linear_value_head_dim"}, 128, SizeKind::width);
  decoder.key_width = key_dim * config.size({"linear_num_key_heads"}, 16, SizeKind::heads);
  decoder.value_heads = config.size({"linear_num_value_heads"}, 32, SizeKind::heads);
  decoder.value_width = decoder.value_heads * decoder.value_dim;
  decoder.kernel = config.size({"linear_conv_kernel_dim"}, 4, SizeKind::width);
  MixtureOfExperts& experts = decoder.experts;
  experts.hidden = decoder.text.hidden;
  experts.experts = config.count({"num_experts"}, 0, SizeKind::experts);
  if (experts.experts > 0) {
    experts.experts_per_token = config.core({"num_experts_per_tok"}, 8, SizeKind::experts);
    experts.intermediate = config.core({"moe_intermediate_size"}, 512, SizeKind::width);
    experts.shared_intermediate =
        config.size({"shared_expert_intermediate_size"}, 512, SizeKind::width);
    experts.shared_gate = true;
    if (!config.integers({"mlp_only_layers"}).empty()) {
      config.problem(
          "mlp_only_layers", "an empty list: dense layers between experts are not read", "a list");
    }
  } else {
    decoder.intermediate = config.core({"intermediate_size"}, 5120, SizeKind::width);
  }
  return decoder;
}

int write_hybrid_trunk(ModelBuilder& builder, const HybridDecoder& decoder) {
  return write_text_trunk(builder, decoder.text, [&](ModelBuilder& b, std::int64_t layer) {
    if (decoder.full[static_cast<std::size_t>(layer)]) {
      write_attention(b, decoder.attention);
    } else {
      write_linear_attention(b, decoder);
    }
    {
      const auto mlp = b.in("mlp", "MLP");
      if (decoder.intermediate > 0) {
        write_gated(b, decoder.text.hidden, decoder.intermediate);
      } else {
        write_experts(b, decoder.experts);
      }
    }
    b.norm("input_layernorm", decoder.text.hidden, "RMSNorm");
    b.norm("post_attention_layernorm", decoder.text.hidden, "RMSNorm");
  });
}

namespace {

// One mixer of Nemotron-H, as hybrid_override_pattern names it: M mamba, * attention, - dense
// feed-forward, E experts.
struct Nemotron {
  TextSizes text;
  std::string pattern;
  GroupedAttention attention;
  std::int64_t mamba_heads = 0;
  std::int64_t mamba_head_dim = 0;
  std::int64_t groups = 0;
  std::int64_t state = 0;
  std::int64_t kernel = 0;
  bool conv_bias = true;
  bool projection_bias = false;
  bool mlp_bias = false;
  std::int64_t intermediate = 0;
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t expert_intermediate = 0;
  std::int64_t shared_intermediate = 0;
  std::int64_t latent = 0;  // width in which the experts work, 0: hidden
};

// The mixers in order; newer files list their names instead of one letter each.
std::string read_pattern(const ConfigReader& config) {
  std::string pattern = config.text({"hybrid_override_pattern"}, "");
  if (!pattern.empty()) return pattern;
  for (const std::string& name : config.texts({"layers_block_type"})) {
    if (name == "mamba") {
      pattern += 'M';
    } else if (name == "attention") {
      pattern += '*';
    } else if (name == "moe") {
      pattern += 'E';
    } else if (name == "mlp") {
      pattern += '-';
    } else {
      pattern += '?';
    }
  }
  return pattern;
}

Nemotron read_nemotron(const ConfigReader& config) {
  Nemotron nemotron;
  nemotron.pattern = read_pattern(config);
  nemotron.text.hidden = config.core({"hidden_size"}, 4096, SizeKind::width);
  nemotron.text.layers = nemotron.pattern.empty()
                             ? config.core({"num_hidden_layers"}, 52, SizeKind::layers)
                             : config.derived({"num_hidden_layers"},
                                              static_cast<std::int64_t>(nemotron.pattern.size()),
                                              SizeKind::layers);
  nemotron.text.vocabulary = config.core({"vocab_size"}, 131072, SizeKind::vocabulary);
  nemotron.text.tied = config.flag({"tie_word_embeddings"}, false);
  if (nemotron.pattern.size() != static_cast<std::size_t>(nemotron.text.layers) ||
      nemotron.pattern.find_first_not_of("M*-E") != std::string::npos) {
    config.problem(
        "hybrid_override_pattern",
        phrase("one of M, *, - and E for each of {} layers, or layers_block_type with their names",
               nemotron.text.layers),
        in_quotes(nemotron.pattern));
  }
  nemotron.attention = read_attention(config);
  // Older repositories call it attention_head_dim.
  nemotron.attention.head_dim =
      config.size({"head_dim", "attention_head_dim"}, 128, SizeKind::width);
  nemotron.mamba_heads = config.core({"mamba_num_heads"}, 128, SizeKind::heads);
  nemotron.mamba_head_dim = config.core({"mamba_head_dim"}, 64, SizeKind::width);
  nemotron.groups = config.core({"n_groups"}, 8, SizeKind::heads);
  nemotron.state = config.core({"ssm_state_size"}, 128, SizeKind::width);
  nemotron.kernel = config.size({"conv_kernel"}, 4, SizeKind::width);
  nemotron.conv_bias = config.flag({"use_conv_bias"}, true);
  nemotron.projection_bias = config.flag({"mamba_proj_bias", "use_bias"}, false);
  nemotron.mlp_bias = config.flag({"mlp_bias"}, false);
  nemotron.intermediate = config.core({"intermediate_size"}, 21504, SizeKind::width);
  if (nemotron.pattern.find('E') != std::string::npos) {
    nemotron.experts = config.core({"n_routed_experts"}, 8, SizeKind::experts);
    nemotron.experts_per_token = config.core({"num_experts_per_tok"}, 2, SizeKind::experts);
    nemotron.expert_intermediate = config.core({"moe_intermediate_size"}, 7688, SizeKind::width);
    nemotron.shared_intermediate =
        config.core({"moe_shared_expert_intermediate_size"}, 7688, SizeKind::width) *
        config.count({"n_shared_experts"}, 1, SizeKind::experts);
    nemotron.latent = config.optional_size({"moe_latent_size"}, SizeKind::width).value_or(0);
  }
  return nemotron;
}

void write_mamba(ModelBuilder& builder, const Nemotron& nemotron) {
  const std::int64_t inner = nemotron.mamba_heads * nemotron.mamba_head_dim;
  const std::int64_t mixed = inner + 2 * nemotron.groups * nemotron.state;
  builder.parameter("dt_bias", {nemotron.mamba_heads});
  builder.parameter("A_log", {nemotron.mamba_heads});
  builder.parameter("D", {nemotron.mamba_heads});
  write_convolution(builder, "conv1d", {mixed, 1, nemotron.kernel}, nemotron.conv_bias);
  builder.linear("in_proj",
                 nemotron.text.hidden,
                 inner + mixed + nemotron.mamba_heads,
                 nemotron.projection_bias);
  builder.norm("norm", inner, "MambaRMSNormGated");
  builder.linear("out_proj", inner, nemotron.text.hidden, nemotron.projection_bias);
}

void write_nemotron_experts(ModelBuilder& builder, const Nemotron& nemotron) {
  const std::int64_t hidden = nemotron.text.hidden;
  const std::int64_t width = nemotron.latent > 0 ? nemotron.latent : hidden;
  {
    const auto scope = builder.in("experts", "NemotronHExperts");
    const auto routing = builder.routed(nemotron.experts_per_token, nemotron.experts);
    builder.parameter("up_proj", {nemotron.experts, nemotron.expert_intermediate, width});
    builder.parameter("down_proj", {nemotron.experts, width, nemotron.expert_intermediate});
  }
  builder.linear("gate", hidden, nemotron.experts, false);
  if (nemotron.shared_intermediate > 0) {
    const auto scope = builder.in("shared_experts", "NemotronHMLP");
    builder.linear("up_proj", hidden, nemotron.shared_intermediate, nemotron.mlp_bias);
    builder.linear("down_proj", nemotron.shared_intermediate, hidden, nemotron.mlp_bias);
  }
  if (nemotron.latent > 0) {
    builder.linear("fc1_latent_proj", hidden, nemotron.latent, nemotron.mlp_bias);
    builder.linear("fc2_latent_proj", nemotron.latent, hidden, nemotron.mlp_bias);
  }
}

void write_mixer(ModelBuilder& builder, const Nemotron& nemotron, char kind) {
  if (kind == '*') {
    write_attention(builder, nemotron.attention);
    return;
  }
  const auto scope = builder.in("mixer", "NemotronHMixer");
  if (kind == 'M') {
    write_mamba(builder, nemotron);
  } else if (kind == 'E') {
    write_nemotron_experts(builder, nemotron);
  } else {
    builder.linear("up_proj", nemotron.text.hidden, nemotron.intermediate, nemotron.mlp_bias);
    builder.linear("down_proj", nemotron.intermediate, nemotron.text.hidden, nemotron.mlp_bias);
  }
}

}  // namespace

Model build_nemotron_h(const FamilyInput& input) {
  const Nemotron nemotron = read_nemotron(input.config);
  return counted_causal_lm(input, nemotron.text, [&](ModelBuilder& b, std::int64_t layer) {
    b.norm("norm", nemotron.text.hidden, "NemotronHRMSNorm");
    write_mixer(b, nemotron, nemotron.pattern[static_cast<std::size_t>(layer)]);
  });
}

}  // namespace zeroplan::families
