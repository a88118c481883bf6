#include "model/families/counted.hpp"

#include <span>
#include <string>
#include <utility>

namespace zeroplan::families {

void write_attention(ModelBuilder& builder, const GroupedAttention& attention) {
  const std::int64_t value_dim = attention.value_dim > 0 ? attention.value_dim : attention.head_dim;
  const std::int64_t queries = attention.heads * attention.head_dim;
  const auto scope = builder.in("self_attn", "Attention");
  if (attention.sinks) builder.parameter("sinks", {attention.heads});
  builder.linear("q_proj",
                 attention.hidden,
                 attention.output_gate ? 2 * queries : queries,
                 attention.qkv_bias);
  builder.linear(
      "k_proj", attention.hidden, attention.kv_heads * attention.head_dim, attention.qkv_bias);
  builder.linear("v_proj", attention.hidden, attention.kv_heads * value_dim, attention.qkv_bias);
  builder.linear("o_proj", attention.heads * value_dim, attention.hidden, attention.output_bias);
  if (attention.query_norm > 0) builder.norm("q_norm", attention.query_norm, "RMSNorm");
  if (attention.key_norm > 0) builder.norm("k_norm", attention.key_norm, "RMSNorm");
}

GroupedAttention read_attention(const ConfigReader& config) {
  GroupedAttention attention;
  attention.hidden = config.core({"hidden_size"}, 4096, SizeKind::width);
  attention.heads = config.core({"num_attention_heads"}, 32, SizeKind::heads);
  attention.kv_heads = config.derived({"num_key_value_heads"}, attention.heads, SizeKind::heads);
  config.must_divide(
      attention.kv_heads, {"num_key_value_heads"}, attention.heads, "num_attention_heads");
  if (const auto given = config.optional_size({"head_dim"}, SizeKind::width)) {
    attention.head_dim = *given;
  } else {
    config.must_divide(attention.heads, {"num_attention_heads"}, attention.hidden, "hidden_size");
    attention.head_dim = attention.hidden / attention.heads;
  }
  attention.qkv_bias = attention.output_bias = config.flag({"attention_bias"}, false);
  return attention;
}

void write_gated(ModelBuilder& builder, std::int64_t hidden, std::int64_t width, bool bias) {
  builder.linear("gate_proj", hidden, width, bias);
  builder.linear("up_proj", hidden, width, bias);
  builder.linear("down_proj", width, hidden, bias);
}

void write_experts(ModelBuilder& builder, const MixtureOfExperts& experts) {
  builder.linear("gate", experts.hidden, experts.experts, experts.router_bias);
  {
    const auto scope = builder.in("experts", "Experts");
    const auto routing = builder.routed(experts.experts_per_token, experts.experts);
    builder.parameter("gate_up_proj", {experts.experts, 2 * experts.intermediate, experts.hidden});
    if (experts.expert_bias) {
      builder.parameter("gate_up_proj_bias", {experts.experts, 2 * experts.intermediate});
    }
    builder.parameter("down_proj", {experts.experts, experts.hidden, experts.intermediate});
    if (experts.expert_bias) {
      builder.parameter("down_proj_bias", {experts.experts, experts.hidden});
    }
  }
  if (experts.shared_intermediate > 0) {
    {
      const auto scope = builder.in("shared_experts", "MLP");
      write_gated(builder, experts.hidden, experts.shared_intermediate);
    }
    if (experts.shared_gate) builder.linear("shared_expert_gate", experts.hidden, 1, false);
  }
}

void write_vision_blocks(ModelBuilder& builder, std::string_view name, const VisionBlocks& vision) {
  const auto norm = [&](std::string_view norm_name) {
    if (vision.norm_bias) {
      builder.layer_norm(norm_name, vision.hidden);
    } else {
      builder.norm(norm_name, vision.hidden, "RMSNorm");
    }
  };
  const auto list = builder.in(name, "ModuleList");
  for (std::int64_t index = 0; index < vision.layers; ++index) {
    const auto block = builder.in(index, "VisionBlock");
    norm("norm1");
    norm("norm2");
    {
      const auto attention = builder.in("attn", "VisionAttention");
      builder.linear("qkv", vision.hidden, 3 * vision.hidden, vision.attention_bias);
      builder.linear("proj", vision.hidden, vision.hidden, vision.attention_bias);
    }
    const auto mlp = builder.in("mlp", "VisionMLP");
    if (vision.gated) {
      write_gated(builder, vision.hidden, vision.intermediate, vision.mlp_bias);
    } else {
      builder.linear("fc1", vision.hidden, vision.intermediate, vision.mlp_bias);
      builder.linear("fc2", vision.intermediate, vision.hidden, vision.mlp_bias);
    }
  }
}

void write_convolution(ModelBuilder& builder,
                       std::string_view name,
                       std::vector<std::int64_t> shape,
                       bool bias) {
  const auto scope = builder.in(name, "Conv" + std::to_string(shape.size() - 2) + "d");
  const std::int64_t outputs = shape.front();
  builder.parameter("weight", std::move(shape));
  if (bias) builder.parameter("bias", {outputs});
}

void write_language_head(
    ModelBuilder& builder, std::int64_t hidden, std::int64_t vocabulary, bool tied, int embedding) {
  if (tied) {
    builder.tied_linear("lm_head", embedding);
  } else {
    builder.linear("lm_head", hidden, vocabulary, false);
  }
}

void only_head(const FamilyInput& input, Head head) { head_of(input, std::span(&head, 1), head); }

std::string architecture_or(const FamilyInput& input, std::string_view fallback) {
  return input.architecture.empty() ? std::string(fallback) : input.architecture;
}

TextSizes read_text_sizes(const ConfigReader& config) {
  TextSizes sizes;
  sizes.hidden = config.core({"hidden_size"}, 4096, SizeKind::width);
  sizes.layers = config.core({"num_hidden_layers", "num_layers"}, 32, SizeKind::layers);
  sizes.vocabulary = config.core({"vocab_size"}, 32000, SizeKind::vocabulary);
  sizes.tied = config.flag({"tie_word_embeddings"}, false);
  return sizes;
}

}  // namespace zeroplan::families
