// Kimi-K3: delta attention and latent attention in turns, experts of a narrower width, attention
// over earlier blocks in place of plain residuals, behind MoonViT. Tensors: modeling_kimi_linear.py
// and modeling_kimi_k3.py of moonshotai/Kimi-K3, as vLLM and SGLang load them
// (model_executor/models/kimi_k3.py, srt/models/kimi_k3.py).
#include <algorithm>

#include "model/families/counted_vision.hpp"

namespace zeroplan::families {

namespace {

struct DeltaAttention {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t kernel = 0;
  bool full_rank_gate = false;
};

struct GatedLatentAttention {
  std::int64_t heads = 0;
  std::int64_t query_rank = 0;  // 0: one projection
  std::int64_t kv_rank = 0;
  std::int64_t rope_dim = 0;
  std::int64_t plain_dim = 0;
  std::int64_t value_dim = 0;
  bool output_gate = false;
};

struct LatentExperts {
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t width = 0;  // of the routed experts' input, 0: the hidden size
  bool norm = false;
  std::int64_t intermediate = 0;
  std::int64_t shared_intermediate = 0;
};

struct KimiText {
  TextSizes sizes;
  DeltaAttention delta;
  GatedLatentAttention latent;
  LatentExperts experts;
  std::vector<bool> is_delta;
  std::int64_t dense_layers = 0;
  std::int64_t frequency = 1;
  std::int64_t intermediate = 0;
  bool block_residuals = false;
};

void read_linear_attention(const ConfigReader& config, KimiText& text) {
  text.is_delta.assign(static_cast<std::size_t>(text.sizes.layers), false);
  const auto linear = config.child({"linear_attn_config"}, config.family());
  if (!linear) {
    config.problem("linear_attn_config", "the delta attention's config", "no such key");
    return;
  }
  text.delta.heads = linear->core({"num_heads"}, 96, SizeKind::heads);
  text.delta.head_dim = linear->core({"head_dim"}, 128, SizeKind::width);
  text.delta.kernel = linear->size({"short_conv_kernel_size"}, 4, SizeKind::width);
  text.delta.full_rank_gate = linear->flag({"use_full_rank_gate"}, false);
  for (const std::int64_t number : linear->integers({"kda_layers"})) {  // counted from one
    if (number < 1 || number > text.sizes.layers) {
      linear->problem(
          "kda_layers", phrase("layers from 1 to {}", text.sizes.layers), std::to_string(number));
      return;
    }
    text.is_delta[static_cast<std::size_t>(number - 1)] = true;
  }
}

// Sizes the configuration class has other defaults for; the released config names them all.
void need_sizes(const ConfigReader& config, ConfigReader::Keys keys) {
  for (const std::string_view key : keys) {
    if (!config.has({key})) config.problem(key, "a size, as in the released config", "no such key");
  }
}

KimiText read_kimi_text(const ConfigReader& config) {
  need_sizes(config,
             {"hidden_size",
              "num_hidden_layers",
              "vocab_size",
              "num_attention_heads",
              "kv_lora_rank",
              "qk_rope_head_dim",
              "qk_nope_head_dim",
              "v_head_dim",
              "num_experts",
              "moe_intermediate_size",
              "intermediate_size"});
  KimiText text;
  text.sizes = read_text_sizes(config);
  read_linear_attention(config, text);
  GatedLatentAttention& latent = text.latent;
  latent.heads = config.core({"num_attention_heads"}, 96, SizeKind::heads);
  latent.query_rank = config.optional_size({"q_lora_rank"}, SizeKind::width).value_or(0);
  latent.kv_rank = config.core({"kv_lora_rank"}, 512, SizeKind::width);
  latent.rope_dim = config.core({"qk_rope_head_dim"}, 64, SizeKind::width);
  latent.plain_dim = config.core({"qk_nope_head_dim"}, 128, SizeKind::width);
  latent.value_dim = config.core({"v_head_dim"}, 128, SizeKind::width);
  latent.output_gate = config.flag({"mla_use_output_gate"}, false);
  LatentExperts& experts = text.experts;
  experts.experts = config.core({"num_experts"}, 896, SizeKind::experts);
  experts.experts_per_token =
      config.core({"num_experts_per_token", "num_experts_per_tok"}, 16, SizeKind::experts);
  if (experts.experts_per_token > experts.experts) {
    config.problem("num_experts_per_token",
                   phrase("at most the number of experts, {}", experts.experts),
                   std::to_string(experts.experts_per_token));
  }
  experts.width = config.optional_size({"routed_expert_hidden_size"}, SizeKind::width).value_or(0);
  experts.norm = config.flag({"latent_moe_use_norm"}, false);
  experts.intermediate = config.core({"moe_intermediate_size"}, 3072, SizeKind::width);
  experts.shared_intermediate =
      experts.intermediate * config.count({"num_shared_experts"}, 0, SizeKind::experts);
  text.dense_layers = config.count({"first_k_dense_replace"}, 0, SizeKind::layers);
  text.frequency = config.derived({"moe_layer_freq"}, 1, SizeKind::layers);
  text.intermediate = config.core({"intermediate_size"}, 33792, SizeKind::width);
  text.block_residuals = config.has({"attn_res_block_size"});
  return text;
}

void write_delta(ModelBuilder& builder, std::int64_t hidden, const DeltaAttention& delta) {
  const std::int64_t width = delta.heads * delta.head_dim;
  const auto scope = builder.in("self_attn", "KimiDeltaAttention");
  builder.parameter("A_log", {1, 1, delta.heads, 1});
  builder.parameter("dt_bias", {width});
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    builder.linear(name, hidden, width, false);
  }
  for (const char* name : {"q_conv1d", "k_conv1d", "v_conv1d"}) {
    write_convolution(builder, name, {width, 1, delta.kernel}, false);
  }
  builder.linear("f_a_proj", hidden, delta.head_dim, false);
  builder.linear("f_b_proj", delta.head_dim, width, false);
  builder.linear("b_proj", hidden, delta.heads, false);
  if (delta.full_rank_gate) {
    builder.linear("g_proj", hidden, width, false);
  } else {
    builder.linear("g_a_proj", hidden, delta.head_dim, false);
    builder.linear("g_b_proj", delta.head_dim, width, false);
  }
  builder.norm("o_norm", delta.head_dim, "FusedRMSNormGated");
  builder.linear("o_proj", width, hidden, false);
}

void write_latent(ModelBuilder& builder, std::int64_t hidden, const GatedLatentAttention& latent) {
  const std::int64_t queries = latent.heads * (latent.plain_dim + latent.rope_dim);
  const std::int64_t values = latent.heads * latent.value_dim;
  const auto scope = builder.in("self_attn", "KimiMLAAttention");
  if (latent.query_rank > 0) {
    builder.linear("q_a_proj", hidden, latent.query_rank, false);
    builder.norm("q_a_layernorm", latent.query_rank, "KimiRMSNorm");
    builder.linear("q_b_proj", latent.query_rank, queries, false);
  } else {
    builder.linear("q_proj", hidden, queries, false);
  }
  builder.linear("kv_a_proj_with_mqa", hidden, latent.kv_rank + latent.rope_dim, false);
  builder.norm("kv_a_layernorm", latent.kv_rank, "KimiRMSNorm");
  builder.linear("kv_b_proj", latent.kv_rank, latent.heads * latent.plain_dim + values, false);
  builder.linear("o_proj", values, hidden, false);
  if (latent.output_gate) builder.linear("g_proj", hidden, values, false);
}

void write_latent_experts(ModelBuilder& builder,
                          std::int64_t hidden,
                          const LatentExperts& experts) {
  const auto scope = builder.in("block_sparse_moe", "KimiSparseMoeBlock");
  const std::int64_t width = experts.width > 0 ? experts.width : hidden;
  {
    const auto gate = builder.in("gate", "KimiMoEGate");
    builder.parameter("weight", {experts.experts, hidden});
    builder.parameter("e_score_correction_bias", {experts.experts});
  }
  {
    const auto list = builder.in("experts", "ModuleList");
    const auto routing = builder.routed(experts.experts_per_token, experts.experts);
    for (const char* name : {"w1", "w3"}) {
      builder.parameter(name, {experts.experts, experts.intermediate, width});
    }
    builder.parameter("w2", {experts.experts, width, experts.intermediate});
  }
  if (experts.shared_intermediate > 0) {
    const auto shared = builder.in("shared_experts", "KimiMLP");
    write_gated(builder, hidden, experts.shared_intermediate);
  }
  if (experts.width > 0) {
    builder.linear("routed_expert_down_proj", hidden, width, false);
    builder.linear("routed_expert_up_proj", width, hidden, false);
    if (experts.norm) builder.norm("routed_expert_norm", width, "KimiRMSNorm");
  }
}

// The score of each earlier block: a norm and one row.
void write_residual_scores(ModelBuilder& builder, const std::string& name, std::int64_t hidden) {
  builder.norm(name + "_norm", hidden, "KimiRMSNorm");
  builder.linear(name + "_proj", hidden, 1, false);
}

void write_kimi_layer(ModelBuilder& builder, const KimiText& text, std::int64_t index) {
  const std::int64_t hidden = text.sizes.hidden;
  if (text.is_delta[static_cast<std::size_t>(index)]) {
    write_delta(builder, hidden, text.delta);
  } else {
    write_latent(builder, hidden, text.latent);
  }
  if (index >= text.dense_layers && index % text.frequency == 0) {
    write_latent_experts(builder, hidden, text.experts);
  } else {
    const auto mlp = builder.in("mlp", "KimiMLP");
    write_gated(builder, hidden, text.intermediate);
  }
  builder.norm("input_layernorm", hidden, "KimiRMSNorm");
  builder.norm("post_attention_layernorm", hidden, "KimiRMSNorm");
  if (text.block_residuals) {
    write_residual_scores(builder, "self_attention_res", hidden);
    write_residual_scores(builder, "mlp_res", hidden);
  }
}

struct KimiVision {
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t intermediate = 0;
  std::int64_t attention = 0;  // width of queries, keys and values
  std::int64_t patch = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t merged = 0;  // width of merged patches
  bool attention_bias = false;
  bool mlp_bias = false;
  bool patch_bias = false;
  bool rms_norm = true;
};

KimiVision read_kimi_vision(const ConfigReader& config) {
  KimiVision vision;
  vision.hidden = config.core({"vt_hidden_size"}, 1024, SizeKind::width);
  vision.layers = config.core({"vt_num_hidden_layers"}, 27, SizeKind::layers);
  vision.intermediate = config.core({"vt_intermediate_size"}, 4096, SizeKind::width);
  vision.attention = config.derived({"qkv_hidden_size"}, vision.hidden, SizeKind::width);
  vision.patch = config.size({"patch_size"}, 14, SizeKind::width);
  vision.height = config.size({"init_pos_emb_height"}, 64, SizeKind::width);
  vision.width = config.size({"init_pos_emb_width"}, 64, SizeKind::width);
  vision.merged = config.derived({"mm_hidden_size"}, vision.hidden, SizeKind::width);
  vision.merged *= merged_patches(config);
  vision.attention_bias = config.flag({"attn_bias"}, false);
  vision.mlp_bias = config.flag({"linear_bias"}, false);
  vision.patch_bias = config.flag({"patch_embed_proj_bias"}, false);
  const std::string norm = config.text({"norm_type"}, "rmsnorm");
  vision.rms_norm = norm == "rmsnorm";
  if (!vision.rms_norm && norm != "layernorm") {
    config.problem("norm_type", "rmsnorm or layernorm", in_quotes(norm));
  }
  const std::string projector = config.text({"mm_projector_type"}, "patchmergerv2");
  if (projector != "patchmergerv2") {
    config.problem("mm_projector_type", "patchmergerv2", in_quotes(projector));
  }
  return vision;
}

void write_kimi_vision(ModelBuilder& builder, const KimiVision& vision, std::int64_t text_hidden) {
  const auto norm = [&](std::string_view name) {
    if (vision.rms_norm) {
      builder.norm(name, vision.hidden, "RMSNorm");
    } else {
      builder.layer_norm(name, vision.hidden);
    }
  };
  {
    const auto tower = builder.in("vision_tower", "MoonViT3dPretrainedModel");
    {
      const auto embed = builder.in("patch_embed", "MoonVision3dPatchEmbed");
      write_convolution(
          builder, "proj", {vision.hidden, 3, vision.patch, vision.patch}, vision.patch_bias);
      // The positions in time are fixed.
      const auto positions = builder.in("pos_emb", "Learnable2DInterpPosEmbDivided_fixed");
      builder.parameter("weight", {vision.height, vision.width, vision.hidden});
    }
    const auto encoder = builder.in("encoder", "MoonViT3dEncoder");
    {
      const auto list = builder.in("blocks", "ModuleList");
      for (std::int64_t index = 0; index < vision.layers; ++index) {
        const auto block = builder.in(index, "MoonViTEncoderLayer");
        norm("norm0");
        norm("norm1");
        builder.linear("mlp.fc0", vision.hidden, vision.intermediate, vision.mlp_bias);
        builder.linear("mlp.fc1", vision.intermediate, vision.hidden, vision.mlp_bias);
        builder.linear("wqkv", vision.hidden, 3 * vision.attention, vision.attention_bias);
        builder.linear("wo", vision.attention, vision.hidden, vision.attention_bias);
      }
    }
    norm("final_layernorm");
  }
  const auto projector = builder.in("mm_projector", "PatchMergerMLPV2");
  builder.linear("proj.0", vision.merged, vision.merged, false);
  builder.linear("proj.2", vision.merged, text_hidden, false);
  builder.norm("post_norm", text_hidden, "RMSNorm");
}

}  // namespace

Model build_kimi_k3(const FamilyInput& input) {
  only_head(input, Head::conditional_generation);
  const ConfigReader& config = input.config;
  const auto text_config = need_child(config, "text_config", "KimiLinearConfig");
  const auto seen = need_child(config, "vision_config", "KimiK3VisionConfig");
  config.throw_problems();
  KimiText text = read_kimi_text(*text_config);
  text.sizes.tied = tied_of(config, *text_config);
  const KimiVision vision = read_kimi_vision(*seen);
  config.throw_problems();

  const TextSizes& sizes = text.sizes;
  Model model;
  model.architecture = architecture_or(input, "KimiK3ForConditionalGeneration");
  ModelBuilder builder(model.architecture);
  write_kimi_vision(builder, vision, sizes.hidden);
  const auto language = builder.in("language_model", "KimiLinearForCausalLM");
  int embedding = -1;
  {
    const auto trunk = builder.in("model", "KimiLinearModel");
    embedding = write_text_trunk(builder, sizes, [&](ModelBuilder& b, std::int64_t index) {
      write_kimi_layer(b, text, index);
    });
    if (text.block_residuals) write_residual_scores(builder, "output_attn_res", sizes.hidden);
  }
  write_language_head(builder, sizes.hidden, sizes.vocabulary, sizes.tied, embedding);
  builder.move_into(model);
  return model;
}

}  // namespace zeroplan::families
