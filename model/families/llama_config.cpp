// Reads the config of a model that is built like LLaMA.
#include <algorithm>
#include <array>
#include <string>

#include "model/families/family.hpp"
#include "model/families/llama_like.hpp"

namespace zeroplan::families {

namespace {

AttentionSizes read_attention(const ConfigReader& config, const LlamaTraits& traits) {
  AttentionSizes sizes;
  sizes.hidden = config.core({"hidden_size", "n_embd", "d_model"}, traits.hidden, SizeKind::width);
  sizes.heads = config.core(
      {"num_attention_heads", "n_head", "n_heads", "num_heads"}, traits.heads, SizeKind::heads);
  // A null means one key head per query head in every class; a missing key the class's default.
  const ConfigReader::Keys kv_keys = {
      "num_key_value_heads", "num_kv_heads", "n_kv_heads", "multi_query_group_num"};
  const bool null_key = config.object().find("num_key_value_heads") != nullptr;
  if (config.has(kv_keys) || null_key || traits.kv_heads == 0) {
    sizes.kv_heads = config.derived(kv_keys, sizes.heads, SizeKind::heads);
  } else {
    sizes.kv_heads = config.size(kv_keys, traits.kv_heads, SizeKind::heads);
  }
  if (const auto given = config.optional_size({"head_dim"}, SizeKind::width)) {
    sizes.head_dim = *given;
  } else if (traits.head_dim != 0) {
    sizes.head_dim = config.size({"head_dim"}, traits.head_dim, SizeKind::width);
  } else {
    config.must_divide(sizes.heads,
                       {"num_attention_heads", "n_head", "n_heads", "num_heads"},
                       sizes.hidden,
                       "hidden_size");
    sizes.head_dim = std::max<std::int64_t>(1, sizes.hidden / sizes.heads);
  }
  config.must_divide(sizes.kv_heads, kv_keys, sizes.heads, "num_attention_heads");
  return sizes;
}

void read_biases(const ConfigReader& config, const LlamaTraits& traits, LlamaLike& llama) {
  switch (traits.bias) {
    case AttentionBias::never:
      break;
    case AttentionBias::by_attention_bias:
      llama.qkv_bias = llama.output_bias = config.flag({"attention_bias"}, false);
      break;
    case AttentionBias::query_key_value:
      llama.qkv_bias = true;
      break;
    case AttentionBias::by_qkv_bias:
      llama.qkv_bias = config.flag({"qkv_bias"}, true);
      break;
    case AttentionBias::by_bias:
      llama.qkv_bias = llama.output_bias = config.flag({"bias"}, true, true);
      break;
    case AttentionBias::by_use_bias:
      llama.qkv_bias = llama.output_bias = llama.mlp_bias = config.flag({"use_bias"}, true);
      break;
    case AttentionBias::not_output:
      llama.qkv_bias = config.flag({"attention_bias"}, true);
      break;
  }
  constexpr std::array<std::string_view, 3> kMlpBias = {"llama", "granite", "smollm3"};
  if (std::find(kMlpBias.begin(), kMlpBias.end(), traits.model_type) != kMlpBias.end())
    llama.mlp_bias = config.flag({"mlp_bias"}, false);
}

void read_experts(const ConfigReader& config, const LlamaTraits& traits, LlamaLike& llama) {
  llama.sparse.assign(static_cast<std::size_t>(llama.layers), false);
  if (traits.experts == ExpertStyle::none) return;
  const bool mixtral = traits.experts == ExpertStyle::mixtral;
  const bool qwen2 = traits.model_type == "qwen2_moe";
  llama.experts = config.size({mixtral ? "num_local_experts" : "num_experts"},
                              mixtral ? 8 : (qwen2 ? 60 : 128),
                              SizeKind::experts);
  llama.experts_per_token =
      config.size({"num_experts_per_tok"}, mixtral ? 2 : (qwen2 ? 4 : 8), SizeKind::experts);
  check_experts_per_token(config, llama.experts_per_token, llama.experts);
  if (mixtral) {
    llama.expert_intermediate = llama.intermediate;
    llama.sparse.assign(llama.sparse.size(), true);
    return;
  }
  llama.expert_intermediate =
      config.size({"moe_intermediate_size"}, qwen2 ? 1408 : 768, SizeKind::width);
  if (qwen2) {
    llama.shared_intermediate =
        config.size({"shared_expert_intermediate_size"}, 5632, SizeKind::width);
  }
  const std::int64_t step = config.derived({"decoder_sparse_step"}, 1, SizeKind::layers);
  const auto dense = config.integers({"mlp_only_layers"});
  for (std::size_t layer = 0; layer < llama.sparse.size(); ++layer) {
    const auto number = static_cast<std::int64_t>(layer);
    const bool listed = std::find(dense.begin(), dense.end(), number) != dense.end();
    llama.sparse[layer] = !listed && (number + 1) % step == 0;
  }
}

// Without rotary positions: Baichuan 13B is the same class name with ALiBi, and its config names
// the context model_max_length instead of max_position_embeddings.
bool uses_alibi(const ConfigReader& config, const LlamaTraits& traits) {
  return traits.model_type == "baichuan" && !config.has({"max_position_embeddings"}) &&
         config.has({"model_max_length"});
}

std::vector<bool> sliding_by_types(const std::vector<std::string>& types) {
  std::vector<bool> sliding;
  sliding.reserve(types.size());
  for (const std::string& type : types) sliding.push_back(type == "sliding_attention");
  return sliding;
}

// Every n-th layer sees all, or turns no positions.
bool but_every(std::int64_t n, std::int64_t layer) { return n <= 0 || (layer + 1) % n != 0; }

// A number that a softcap or a multiplier has; null and 0 mean none.
bool has_number(const ConfigReader& config, ConfigReader::Keys keys, double fallback) {
  const Json* value = config.object().find(*keys.begin());
  if (value == nullptr) return fallback != 0.0;
  return value->is_number() && value->as_number() != 0.0;
}

}  // namespace

void read_layer_attention(const ConfigReader& config,
                          const LlamaTraits& traits,
                          TransformerShape& shape) {
  const std::string_view type = traits.model_type;
  shape.attention_softcap = type == "gemma2" && has_number(config, {"attn_logit_softcapping"}, 50);
  shape.logits_softcap =
      (type == "gemma2" && has_number(config, {"final_logit_softcapping"}, 30)) ||
      (type == "gemma3_text" && has_number(config, {"final_logit_softcapping"}, 0));
  shape.logits_scaled = type == "granite" || type == "cohere" || type == "cohere2";
  if (type == "starcoder2") {
    shape.hidden_dropout = config.fraction({"residual_dropout"}, 0.0);
    shape.embedding_dropout = config.fraction({"embedding_dropout"}, 0.0);
  }
  if (traits.turns == LayerTurns::none) return;
  const Json* window = config.object().find("sliding_window");
  const bool no_window = (window == nullptr && traits.sliding_window == 0) ||
                         (window != nullptr && window->is_null()) ||
                         (traits.window_needs_flag && !config.flag({"use_sliding_window"}, false));
  if (!no_window) {
    shape.sliding_window =
        config.derived({"sliding_window"}, traits.sliding_window, SizeKind::positions);
  }
  const std::string_view every =
      traits.turns == LayerTurns::by_no_rope ? "no_rope_layer_interval" : "sliding_window_pattern";
  const std::int64_t n = config.derived({every}, traits.pattern, SizeKind::layers);
  const std::vector<bool> types = sliding_by_types(config.texts({"layer_types"}));
  const std::vector<std::int64_t> turned = config.integers({"no_rope_layers"});
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const auto i = static_cast<std::size_t>(layer);
    LayerAttention attention;
    switch (traits.turns) {
      case LayerTurns::none:
        break;
      case LayerTurns::by_pattern:
        attention.sliding = i < types.size() ? types[i] : but_every(n, layer);
        attention.rotary = type != "cohere2" || attention.sliding;
        break;
      case LayerTurns::by_no_rope:
        attention.rotary = i < turned.size() ? turned[i] != 0 : but_every(n, layer);
        attention.sliding = i < types.size() ? types[i] : !attention.rotary;
        break;
      case LayerTurns::all_slide:
        attention.sliding = true;
        break;
    }
    attention.sliding = attention.sliding && shape.sliding_window > 0;
    shape.layer_attention.push_back(attention);
  }
}

LlamaLike read_llama_like(const ConfigReader& config, const LlamaTraits& traits) {
  LlamaLike llama;
  llama.traits = &traits;
  llama.attention = read_attention(config, traits);
  llama.layers = config.core(
      {"num_hidden_layers", "n_layer", "num_layers", "n_layers"}, traits.layers, SizeKind::layers);
  llama.intermediate = config.core(
      {"intermediate_size", "ffn_hidden_size", "n_inner"}, traits.intermediate, SizeKind::width);
  llama.vocabulary =
      config.core({"vocab_size", "padded_vocab_size"}, traits.vocabulary, SizeKind::vocabulary);
  llama.tied = config.flag({"tie_word_embeddings"}, traits.tied);
  llama.alibi = uses_alibi(config, traits);
  llama.activation =
      activation_of(config.text({"hidden_act", "hidden_activation"}, traits.activation));
  llama.head_norms = traits.head_norms;
  if (traits.head_norms == HeadNorms::by_use_qk_norm && !config.flag({"use_qk_norm"}, false)) {
    llama.head_norms = HeadNorms::none;
  }
  read_biases(config, traits, llama);
  read_experts(config, traits, llama);
  return llama;
}

}  // namespace zeroplan::families
