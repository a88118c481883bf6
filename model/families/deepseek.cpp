// DeepSeek-V2 and V3: multi-head latent attention, dense layers first, then stacked experts beside
// shared ones. Multi-token prediction is left out, as transformers leaves it out.
// Defaults: transformers 5.17 configuration_deepseek_v2.py, configuration_deepseek_v3.py.
#include <string>

#include "model/families/family.hpp"

namespace zeroplan::families {

namespace {

struct DeepSeek {
  std::string classes;  // "DeepseekV3"
  bool third = false;   // V3, otherwise V2
  AttentionSizes attention;
  LatentAttentionShape latent;
  std::int64_t rope_dim = 0;
  std::int64_t vocabulary = 0;
  std::int64_t layers = 0;
  std::int64_t dense_layers = 0;
  std::int64_t intermediate = 0;
  ExpertShape experts;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tied = false;
};

void read_attention(const ConfigReader& config, DeepSeek& read) {
  AttentionSizes& sizes = read.attention;
  sizes.hidden = config.core({"hidden_size"}, read.third ? 7168 : 4096, SizeKind::width);
  sizes.heads = config.core({"num_attention_heads"}, read.third ? 128 : 32, SizeKind::heads);
  sizes.kv_heads = sizes.heads;
  const Json* rank = config.object().find("q_lora_rank");
  const bool none = rank != nullptr && rank->is_null();
  read.latent.query_rank = none ? 0 : config.size({"q_lora_rank"}, 1536, SizeKind::width);
  read.latent.kv_rank = config.size({"kv_lora_rank"}, 512, SizeKind::width);
  read.latent.plain_dim = config.size({"qk_nope_head_dim"}, 128, SizeKind::width);
  read.latent.value_dim = config.size({"v_head_dim"}, 128, SizeKind::width);
  read.rope_dim = config.size({"qk_rope_head_dim"}, 64, SizeKind::width);
  if (read.rope_dim % 2 != 0) {
    config.problem("qk_rope_head_dim",
                   "an even number of elements of each head for rotary positions, which turn pairs",
                   std::to_string(read.rope_dim));
  }
  sizes.head_dim = read.latent.plain_dim + read.rope_dim;
}

void read_experts(const ConfigReader& config, DeepSeek& read) {
  ExpertShape& experts = read.experts;
  experts.experts =
      config.size({"n_routed_experts", "num_experts"}, read.third ? 256 : 64, SizeKind::experts);
  experts.experts_per_token =
      config.size({"num_experts_per_tok"}, read.third ? 8 : 6, SizeKind::experts);
  check_experts_per_token(config, experts.experts_per_token, experts.experts);
  experts.intermediate =
      config.size({"moe_intermediate_size"}, read.third ? 2048 : 1407, SizeKind::width);
  experts.shared_intermediate =
      experts.intermediate *
      config.size({"n_shared_experts"}, read.third ? 1 : 2, SizeKind::experts);
  experts.fused = true;
  const bool groups =
      read.third || config.text({"topk_method"}, "greedy") == "group_limited_greedy";
  if (groups) experts.groups = config.derived({"n_group"}, read.third ? 8 : 1, SizeKind::experts);
  if (experts.experts % experts.groups != 0) {
    config.problem("n_group",
                   phrase("a divisor of the number of experts, {}", experts.experts),
                   std::to_string(experts.groups));
  }
  read.dense_layers = config.count({"first_k_dense_replace"}, read.third ? 3 : 0, SizeKind::layers);
}

DeepSeek read_deepseek(const ConfigReader& config, bool third) {
  DeepSeek read;
  read.third = third;
  read.classes = third ? "DeepseekV3" : "DeepseekV2";
  read_attention(config, read);
  read.layers = config.core({"num_hidden_layers"}, third ? 61 : 32, SizeKind::layers);
  read.vocabulary = config.core({"vocab_size"}, third ? 129280 : 102400, SizeKind::vocabulary);
  read.intermediate = config.core({"intermediate_size"}, third ? 18432 : 11008, SizeKind::width);
  read_experts(config, read);
  read.attention_bias = config.flag({"attention_bias"}, false);
  read.mlp_bias = !third && config.flag({"mlp_bias"}, false);
  read.tied = config.flag({"tie_word_embeddings"}, false);
  return read;
}

void write_attention(ModelBuilder& builder, const DeepSeek& model) {
  const AttentionSizes& sizes = model.attention;
  const LatentAttentionShape& latent = model.latent;
  const std::string norm = model.classes + "RMSNorm";
  const std::int64_t queries = sizes.heads * sizes.head_dim;
  const auto scope = builder.in("self_attn", model.classes + "Attention");
  if (latent.query_rank > 0) {
    builder.linear("q_a_proj", sizes.hidden, latent.query_rank, model.attention_bias);
    builder.norm("q_a_layernorm", latent.query_rank, norm);
    builder.linear("q_b_proj", latent.query_rank, queries, false);
  } else {
    builder.linear("q_proj", sizes.hidden, queries, false);
  }
  builder.linear(
      "kv_a_proj_with_mqa", sizes.hidden, latent.kv_rank + model.rope_dim, model.attention_bias);
  builder.norm("kv_a_layernorm", latent.kv_rank, norm);
  builder.linear(
      "kv_b_proj", latent.kv_rank, sizes.heads * (latent.plain_dim + latent.value_dim), false);
  builder.linear("o_proj", sizes.heads * latent.value_dim, sizes.hidden, model.attention_bias);
}

void write_mlp(ModelBuilder& builder, const DeepSeek& model, std::int64_t width) {
  builder.linear("gate_proj", model.attention.hidden, width, model.mlp_bias);
  builder.linear("up_proj", model.attention.hidden, width, model.mlp_bias);
  builder.linear("down_proj", width, model.attention.hidden, model.mlp_bias);
  builder.leaf("act_fn", "SiLUActivation");
}

void write_experts(ModelBuilder& builder, const DeepSeek& model) {
  const ExpertShape& shape = model.experts;
  const std::int64_t hidden = model.attention.hidden;
  const auto scope = builder.in("mlp", model.classes + (model.third ? "MoE" : "Moe"));
  {
    const auto experts = builder.in("experts", model.classes + "Experts");
    const auto routing = builder.routed(shape.experts_per_token, shape.experts);
    builder.parameter("gate_up_proj", {shape.experts, 2 * shape.intermediate, hidden});
    builder.parameter("down_proj", {shape.experts, hidden, shape.intermediate});
    builder.leaf("act_fn", "SiLUActivation");
  }
  builder.linear("gate", hidden, shape.experts, false, model.classes + "TopkRouter");
  const auto shared = builder.in("shared_experts", model.classes + "MLP");
  write_mlp(builder, model, shape.shared_intermediate);
}

void write_layer(ModelBuilder& builder, const DeepSeek& model, std::int64_t layer) {
  const std::string norm = model.classes + "RMSNorm";
  const auto scope = builder.in(layer, model.classes + "DecoderLayer");
  write_attention(builder, model);
  if (layer < model.dense_layers) {
    const auto mlp = builder.in("mlp", model.classes + "MLP");
    write_mlp(builder, model, model.intermediate);
  } else {
    write_experts(builder, model);
  }
  builder.norm("input_layernorm", model.attention.hidden, norm);
  builder.norm("post_attention_layernorm", model.attention.hidden, norm);
}

int write_trunk(ModelBuilder& builder, const DeepSeek& model) {
  const int embedding = builder.embedding("embed_tokens", model.vocabulary, model.attention.hidden);
  {
    const auto list = builder.in("layers", "ModuleList");
    for (std::int64_t layer = 0; layer < model.layers; ++layer) write_layer(builder, model, layer);
  }
  builder.norm("norm", model.attention.hidden, model.classes + "RMSNorm");
  builder.leaf("rotary_emb", model.classes + "RotaryEmbedding");
  return embedding;
}

void fill_shape(const ConfigReader& config, const DeepSeek& model, TransformerShape& shape) {
  set_sizes(shape, model.attention, model.layers, model.intermediate, model.vocabulary);
  shape.max_positions =
      config.derived({"max_position_embeddings"}, model.third ? 4096 : 2048, SizeKind::positions);
  shape.tied_embeddings = model.tied;
  shape.rotary_dim = model.rope_dim;
  shape.norm_epsilon = config.fraction({"rms_norm_eps"}, 1e-6);
  shape.attention_dropout = config.fraction({"attention_dropout"}, 0.0);
  shape.latent = model.latent;
  shape.experts = model.experts;
  shape.dense_layers = model.dense_layers;
}

}  // namespace

Model build_deepseek(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  const bool third = input.model_type == "deepseek_v3";
  const Head head = head_of(input, kTextHeads, Head::causal_lm);
  const DeepSeek read = read_deepseek(config, third);
  TransformerShape shape;
  fill_shape(config, read, shape);
  const Decoder decoder = {.classes = read.classes,
                           .attribute = "model",
                           .implementation_family = "deepseek",
                           .head = head,
                           .top = {.hidden = read.attention.hidden,
                                   .vocabulary = read.vocabulary,
                                   .tied = read.tied,
                                   .tokens = "score"},
                           .activation = activation_of(config.text({"hidden_act"}, "silu"))};
  return decoder_model(
      config, shape, decoder, [&](ModelBuilder& b) { return write_trunk(b, read); });
}

}  // namespace zeroplan::families
