// DeepSeek-V3/R1, Kimi-K2 (deepseek_v3), DeepSeek-V3.2 and GLM-5 (with the indexer of sparse
// attention), MiniCPM3 (dense). Tensors: transformers 5.23 modeling_deepseek_v3.py,
// modeling_deepseek_v32.py, modeling_glm_moe_dsa.py, modeling_minicpm3.py. The layers for
// multi-token prediction are left out, as those classes leave them out.
#include "model/families/counted_mla.hpp"

#include <algorithm>

namespace zeroplan::families {

namespace {

void write_indexer(ModelBuilder& builder, const LatentDecoder& decoder) {
  const auto scope = builder.in("indexer", "Indexer");
  builder.linear("wq_b", decoder.query_rank, decoder.index_heads * decoder.index_dim, false);
  builder.linear("wk", decoder.text.hidden, decoder.index_dim, false);
  builder.layer_norm("k_norm", decoder.index_dim);
  builder.linear("weights_proj", decoder.text.hidden, decoder.index_heads, false);
}

void write_latent_attention(ModelBuilder& builder, const LatentDecoder& decoder, bool indexed) {
  const std::int64_t hidden = decoder.text.hidden;
  const std::int64_t queries = decoder.heads * (decoder.plain_dim + decoder.rope_dim);
  const auto scope = builder.in("self_attn", "LatentAttention");
  if (decoder.query_rank > 0) {
    builder.linear("q_a_proj", hidden, decoder.query_rank, decoder.bias);
    builder.norm("q_a_layernorm", decoder.query_rank, "RMSNorm");
    builder.linear("q_b_proj", decoder.query_rank, queries, false);
  } else {
    builder.linear("q_proj", hidden, queries, false);
  }
  builder.linear("kv_a_proj_with_mqa", hidden, decoder.kv_rank + decoder.rope_dim, decoder.bias);
  builder.norm("kv_a_layernorm", decoder.kv_rank, "RMSNorm");
  builder.linear(
      "kv_b_proj", decoder.kv_rank, decoder.heads * (decoder.plain_dim + decoder.value_dim), false);
  builder.linear("o_proj", decoder.heads * decoder.value_dim, hidden, decoder.bias);
  if (indexed) write_indexer(builder, decoder);
}

// indexer_types names the layers that share an earlier layer's indexer; without it all have one.
std::vector<bool> indexed_layers(const ConfigReader& config, const LatentDecoder& decoder) {
  std::vector<bool> indexed(static_cast<std::size_t>(decoder.text.layers), true);
  const auto types = config.texts({"indexer_types"});
  for (std::size_t layer = 0; layer < std::min(types.size(), indexed.size()); ++layer) {
    indexed[layer] = types[layer] == "full";
  }
  return indexed;
}

}  // namespace

LatentDecoder read_latent_decoder(const ConfigReader& config, bool with_indexer, bool mixture) {
  LatentDecoder decoder;
  decoder.text = read_text_sizes(config);
  decoder.heads = config.core({"num_attention_heads"}, 128, SizeKind::heads);
  decoder.query_rank = config.optional_size({"q_lora_rank"}, SizeKind::width).value_or(0);
  decoder.kv_rank = config.core({"kv_lora_rank"}, 512, SizeKind::width);
  decoder.rope_dim = config.core({"qk_rope_head_dim"}, 64, SizeKind::width);
  decoder.plain_dim = config.core({"qk_nope_head_dim"}, 128, SizeKind::width);
  decoder.value_dim =
      config.derived({"v_head_dim"}, decoder.text.hidden / decoder.heads, SizeKind::width);
  decoder.bias = config.flag({"attention_bias"}, false);
  decoder.intermediate = config.core({"intermediate_size"}, 18432, SizeKind::width);
  if (with_indexer) {
    decoder.index_heads = config.core({"index_n_heads"}, 64, SizeKind::heads);
    decoder.index_dim = config.core({"index_head_dim"}, 128, SizeKind::width);
    decoder.indexed = indexed_layers(config, decoder);
  }
  MixtureOfExperts& experts = decoder.experts;
  experts.hidden = decoder.text.hidden;
  experts.experts =
      mixture ? config.core({"n_routed_experts", "num_routed_experts"}, 256, SizeKind::experts) : 0;
  decoder.dense_layers = decoder.text.layers;
  if (experts.experts > 0) {
    experts.experts_per_token = config.core({"num_experts_per_tok"}, 8, SizeKind::experts);
    experts.intermediate = config.core({"moe_intermediate_size"}, 2048, SizeKind::width);
    experts.shared_intermediate =
        experts.intermediate *
        config.count({"n_shared_experts", "num_shared_experts"}, 1, SizeKind::experts);
    decoder.dense_layers = config.count({"first_k_dense_replace"}, 3, SizeKind::layers);
  }
  return decoder;
}

int write_latent_trunk(ModelBuilder& builder, const LatentDecoder& decoder) {
  return write_text_trunk(builder, decoder.text, [&](ModelBuilder& b, std::int64_t layer) {
    const bool indexed =
        !decoder.indexed.empty() && decoder.indexed[static_cast<std::size_t>(layer)];
    write_latent_attention(b, decoder, indexed);
    {
      const auto mlp = b.in("mlp", "MLP");
      if (layer < decoder.dense_layers) {
        write_gated(b, decoder.text.hidden, decoder.intermediate);
      } else {
        write_experts(b, decoder.experts);
      }
    }
    b.norm("input_layernorm", decoder.text.hidden, "RMSNorm");
    b.norm("post_attention_layernorm", decoder.text.hidden, "RMSNorm");
  });
}

Model build_latent(const FamilyInput& input) {
  const bool with_indexer = input.model_type == "deepseek_v32" || input.model_type == "glm_moe_dsa";
  only_head(input, Head::causal_lm);
  const bool dense = input.model_type == "minicpm3";
  LatentDecoder decoder = read_latent_decoder(input.config, with_indexer, !dense);
  // MiniCPM3Config ties by default, unlike the others.
  if (dense) decoder.text.tied = input.config.flag({"tie_word_embeddings"}, true);
  input.config.throw_problems();
  return counted_language_model(
      input, decoder.text, {.architecture = "DeepseekV3ForCausalLM"}, [&](ModelBuilder& b) {
        return write_latent_trunk(b, decoder);
      });
}

}  // namespace zeroplan::families
