// Language models that are counted: close to LLaMA in their tensors, with an attention, router or
// norm whose operations are not modelled.
#include <algorithm>
#include <string>
#include <vector>

#include "model/families/counted.hpp"

namespace zeroplan::families {

namespace {

// self_attn, the mlp that `mlp()` writes, and the two norms.
template <typename Mlp>
void write_layer(ModelBuilder& builder,
                 const GroupedAttention& attention,
                 std::string_view mlp_class,
                 Mlp mlp) {
  write_attention(builder, attention);
  {
    const auto scope = builder.in("mlp", mlp_class);
    mlp();
  }
  builder.norm("input_layernorm", attention.hidden, "RMSNorm");
  builder.norm("post_attention_layernorm", attention.hidden, "RMSNorm");
}

MixtureOfExperts read_experts(const ConfigReader& config,
                              std::int64_t hidden,
                              ConfigReader::Keys count_keys,
                              ConfigReader::Keys width_keys) {
  MixtureOfExperts experts;
  experts.hidden = hidden;
  experts.experts = config.core(count_keys, 8, SizeKind::experts);
  experts.experts_per_token = config.core({"num_experts_per_tok"}, 2, SizeKind::experts);
  experts.intermediate = config.core(width_keys, 2048, SizeKind::width);
  if (experts.experts_per_token > experts.experts) {
    config.problem("num_experts_per_tok",
                   phrase("at most the number of experts, {}", experts.experts),
                   std::to_string(experts.experts_per_token));
  }
  return experts;
}

// A list with one 0 or 1 a layer; missing entries repeat `fallback`.
std::vector<bool> layer_flags(const ConfigReader& config,
                              ConfigReader::Keys keys,
                              std::int64_t layers,
                              bool fallback) {
  std::vector<bool> flags(static_cast<std::size_t>(layers), fallback);
  const auto given = config.integers(keys);
  for (std::size_t layer = 0; layer < std::min(given.size(), flags.size()); ++layer) {
    flags[layer] = given[layer] != 0;
  }
  return flags;
}

}  // namespace

// Tensors: transformers 5.23 modeling_minimax_m2.py (q_norm and k_norm over all heads; the
// modules for multi-token prediction are left out there).
Model build_minimax_m2(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  const TextSizes sizes = read_text_sizes(config);
  GroupedAttention attention = read_attention(config);
  if (config.flag({"use_qk_norm"}, true)) {
    attention.query_norm = attention.heads * attention.head_dim;
    attention.key_norm = attention.kv_heads * attention.head_dim;
  }
  const auto experts =
      read_experts(config, sizes.hidden, {"num_local_experts"}, {"intermediate_size"});
  return counted_causal_lm(input, sizes, [&](ModelBuilder& b, std::int64_t) {
    write_layer(b, attention, "SparseMoeBlock", [&] { write_experts(b, experts); });
  });
}

// Tensors: transformers 5.23 modeling_mimo_v2_flash.py: full and sliding layers with their own
// heads, sinks in the sliding ones.
Model build_mimo_v2_flash(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  const TextSizes sizes = read_text_sizes(config);
  GroupedAttention full = read_attention(config);
  full.value_dim = config.derived({"v_head_dim"}, full.head_dim, SizeKind::width);
  full.sinks = config.flag({"add_full_attention_sink_bias"}, false);
  GroupedAttention sliding = full;
  sliding.heads = config.derived({"swa_num_attention_heads"}, full.heads, SizeKind::heads);
  sliding.kv_heads = config.derived({"swa_num_key_value_heads"}, full.kv_heads, SizeKind::heads);
  sliding.head_dim = config.derived({"swa_head_dim"}, full.head_dim, SizeKind::width);
  sliding.value_dim = config.derived({"swa_v_head_dim"}, full.value_dim, SizeKind::width);
  sliding.sinks = config.flag({"add_swa_attention_sink_bias"}, true);
  const std::int64_t intermediate = config.core({"intermediate_size"}, 16384, SizeKind::width);
  auto experts =
      read_experts(config, sizes.hidden, {"n_routed_experts"}, {"moe_intermediate_size"});
  experts.shared_intermediate =
      experts.intermediate * config.count({"n_shared_experts"}, 0, SizeKind::experts);
  const auto is_sliding = layer_flags(config, {"hybrid_layer_pattern"}, sizes.layers, true);
  const auto is_sparse = layer_flags(config, {"moe_layer_freq"}, sizes.layers, true);
  return counted_causal_lm(input, sizes, [&](ModelBuilder& b, std::int64_t layer) {
    const auto at = static_cast<std::size_t>(layer);
    write_layer(b, is_sliding[at] ? sliding : full, "MLP", [&] {
      if (is_sparse[at]) {
        write_experts(b, experts);
      } else {
        write_gated(b, sizes.hidden, intermediate);
      }
    });
  });
}

// Ling. Tensors: modeling_bailing_moe.py of inclusionAI/Ling-lite: fused query_key_value and dense
// in the attention, a linear gate, experts, shared experts.
Model build_bailing_moe(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  const TextSizes sizes = read_text_sizes(config);
  GroupedAttention attention = read_attention(config);
  attention.qkv_bias = config.flag({"use_qkv_bias"}, false);
  attention.output_bias = config.flag({"use_bias"}, false);
  const std::int64_t intermediate = config.core({"intermediate_size"}, 5632, SizeKind::width);
  auto experts = read_experts(config, sizes.hidden, {"num_experts"}, {"moe_intermediate_size"});
  experts.shared_intermediate =
      experts.intermediate * config.count({"num_shared_experts"}, 0, SizeKind::experts);
  const std::int64_t dense = config.count({"first_k_dense_replace"}, 0, SizeKind::layers);
  return counted_causal_lm(input, sizes, [&](ModelBuilder& b, std::int64_t layer) {
    write_layer(b, attention, "MLP", [&] {
      if (layer < dense) {
        write_gated(b, sizes.hidden, intermediate);
      } else {
        write_experts(b, experts);
      }
    });
  });
}

// EXAONE 3 (modeling_exaone.py of LGAI-EXAONE/EXAONE-3.0-7.8B-Instruct), MiniCPM
// (modeling_minicpm.py of openbmb/MiniCPM4-8B) and MiMo-7B (a qwen2 whose layer for multi-token
// prediction is no part of the language model): the tensors of LLaMA under other names.
Model build_llama_tensors(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  const TextSizes sizes = read_text_sizes(config);
  GroupedAttention attention = read_attention(config);
  attention.output_bias = attention.output_bias && input.model_type != "mimo";
  const std::int64_t intermediate = config.core({"intermediate_size"}, 11008, SizeKind::width);
  return counted_causal_lm(input, sizes, [&](ModelBuilder& b, std::int64_t) {
    write_layer(b, attention, "MLP", [&] { write_gated(b, sizes.hidden, intermediate); });
  });
}

// Qwen 1. Tensors: modeling_qwen.py of Qwen/Qwen-7B; intermediate_size counts gate and up
// together.
Model build_qwen(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  TextSizes sizes;
  sizes.hidden = config.core({"hidden_size", "n_embd"}, 4096, SizeKind::width);
  sizes.layers = config.core({"num_hidden_layers", "n_layer"}, 32, SizeKind::layers);
  sizes.vocabulary = config.core({"vocab_size", "padded_vocab_size"}, 151936, SizeKind::vocabulary);
  const std::int64_t heads = config.core({"num_attention_heads", "n_head"}, 32, SizeKind::heads);
  const std::int64_t head_dim = config.derived({"kv_channels"}, 128, SizeKind::width);
  const std::int64_t half =
      config.core({"intermediate_size", "ffn_hidden_size"}, 22016, SizeKind::width) / 2;
  const bool bias = !config.flag({"no_bias"}, true);
  const std::int64_t inner = heads * head_dim;
  only_head(input, Head::causal_lm);
  config.throw_problems();

  return counted_model(input, "QWenLMHeadModel", [&](ModelBuilder& builder) {
    {
      const auto trunk = builder.in("transformer", "QWenModel");
      builder.embedding("wte", sizes.vocabulary, sizes.hidden);
      builder.leaf("drop", "Dropout");
      {
        const auto list = builder.in("h", "ModuleList");
        for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
          const auto block = builder.in(layer, "QWenBlock");
          builder.norm("ln_1", sizes.hidden, "RMSNorm");
          {
            const auto attention = builder.in("attn", "QWenAttention");
            builder.linear("c_attn", sizes.hidden, 3 * inner, true);
            builder.linear("c_proj", inner, sizes.hidden, bias);
          }
          builder.norm("ln_2", sizes.hidden, "RMSNorm");
          const auto mlp = builder.in("mlp", "QWenMLP");
          builder.linear("w1", sizes.hidden, half, bias);
          builder.linear("w2", sizes.hidden, half, bias);
          builder.linear("c_proj", half, sizes.hidden, bias);
        }
      }
      builder.norm("ln_f", sizes.hidden, "RMSNorm");
    }
    builder.linear("lm_head", sizes.hidden, sizes.vocabulary, false);
  });
}

// DBRX. Tensors: transformers 5.23 modeling_dbrx.py.
Model build_dbrx(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  const std::int64_t hidden = config.core({"d_model"}, 2048, SizeKind::width);
  const std::int64_t heads = config.core({"n_heads"}, 16, SizeKind::heads);
  const std::int64_t layers = config.core({"n_layers"}, 24, SizeKind::layers);
  const std::int64_t vocabulary = config.core({"vocab_size"}, 32000, SizeKind::vocabulary);
  const bool tied = config.flag({"tie_word_embeddings"}, false);
  config.must_divide(heads, {"n_heads"}, hidden, "d_model");
  std::int64_t kv_heads = heads;
  if (const auto attention = config.child({"attn_config"}, "DbrxAttentionConfig")) {
    kv_heads = attention->size({"kv_n_heads"}, 1, SizeKind::heads);
  }
  MixtureOfExperts experts = {
      .hidden = hidden, .experts = 4, .experts_per_token = 1, .intermediate = 3584};
  if (const auto ffn = config.child({"ffn_config"}, "DbrxFFNConfig")) {
    experts.experts = ffn->size({"moe_num_experts"}, 4, SizeKind::experts);
    experts.experts_per_token = ffn->size({"moe_top_k"}, 1, SizeKind::experts);
    experts.intermediate = ffn->size({"ffn_hidden_size"}, 3584, SizeKind::width);
  }
  only_head(input, Head::causal_lm);
  config.throw_problems();

  const TextSizes sizes = {hidden, layers, vocabulary, tied};
  const CountedClasses classes = {"DbrxForCausalLM", "transformer", "DbrxModel"};
  return counted_language_model(input, sizes, classes, [&](ModelBuilder& builder) {
    const int embedding = builder.embedding("wte", vocabulary, hidden);
    {
      const auto list = builder.in("blocks", "ModuleList");
      for (std::int64_t layer = 0; layer < layers; ++layer) {
        const auto block = builder.in(layer, "DbrxBlock");
        builder.layer_norm("norm_1", hidden, false);
        builder.linear("Wqkv", hidden, hidden + 2 * kv_heads * (hidden / heads), false);
        builder.linear("out_proj", hidden, hidden, false);
        builder.layer_norm("norm_2", hidden, false);
        const auto ffn = builder.in("ffn", "DbrxFFN");
        write_experts(builder, experts);
      }
    }
    builder.layer_norm("norm_f", hidden, false);
    return embedding;
  });
}

namespace {

struct Olmo {
  TextSizes sizes;
  GroupedAttention attention;
  std::int64_t intermediate = 0;
};

Olmo read_olmo(const ConfigReader& config) {
  Olmo olmo;
  TextSizes& sizes = olmo.sizes;
  sizes.hidden = config.core({"d_model"}, 4096, SizeKind::width);
  sizes.layers = config.core({"n_layers"}, 32, SizeKind::layers);
  sizes.vocabulary = config.core({"embedding_size", "vocab_size"}, 50304, SizeKind::vocabulary);
  sizes.tied = config.flag({"weight_tying"}, false);
  GroupedAttention& attention = olmo.attention;
  attention.hidden = sizes.hidden;
  attention.heads = config.core({"n_heads"}, 32, SizeKind::heads);
  attention.kv_heads = config.derived({"n_kv_heads"}, attention.heads, SizeKind::heads);
  if (config.flag({"multi_query_attention"}, false)) attention.kv_heads = 1;
  config.must_divide(attention.heads, {"n_heads"}, sizes.hidden, "d_model");
  attention.head_dim = sizes.hidden / attention.heads;
  attention.qkv_bias = attention.output_bias = config.flag({"include_bias"}, false);
  // mlp_hidden_size and mlp_ratio count gate and up together.
  const std::int64_t ratio = config.derived({"mlp_ratio"}, 4, SizeKind::width);
  olmo.intermediate =
      config.derived({"mlp_hidden_size"}, ratio * sizes.hidden, SizeKind::width) / 2;
  if (config.flag({"layer_norm_with_affine"}, true)) {
    config.problem("layer_norm_with_affine", "false, as in OLMo-1B and OLMo-7B", "true");
  }
  return olmo;
}

}  // namespace

// OLMo: transformers' class is built like LLaMA; the older repositories (d_model, mlp_ratio,
// weight_tying; allenai/OLMo-1B without -hf) have code of their own, which is counted.
Model build_olmo(const FamilyInput& input) {
  if (!input.config.has({"d_model"})) return build_llama_like(input);
  only_head(input, Head::causal_lm);
  const Olmo olmo = read_olmo(input.config);
  input.config.throw_problems();
  const TextSizes& sizes = olmo.sizes;

  const CountedClasses classes = {.architecture = "OlmoForCausalLM", .trunk = "OlmoModel"};
  Model model = counted_language_model(input, sizes, classes, [&](ModelBuilder& builder) {
    const int embedding = builder.embedding("embed_tokens", sizes.vocabulary, sizes.hidden);
    const auto list = builder.in("layers", "ModuleList");
    for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
      const auto block = builder.in(layer, "OlmoDecoderLayer");
      write_attention(builder, olmo.attention);
      const auto mlp = builder.in("mlp", "OlmoMLP");
      write_gated(builder, sizes.hidden, olmo.intermediate);
    }
    return embedding;
  });
  not_planned(model,
              "the code of its first repositories is not modelled; that of transformers, which the "
              "checkpoints named -hf have, is");
  return model;
}

}  // namespace zeroplan::families
