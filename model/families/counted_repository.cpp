// Models whose classes are in their own repositories: Molmo (modeling_molmo.py of
// allenai/Molmo-7B-D-0924), LocateAnything (modeling_locateanything.py of
// nvidia/LocateAnything-3B, modeling_moonvit.py of moonshotai/MoonViT-SO-400M) and the decoder-only
// T5 of the BigScience workshop (experiments/decoder-only-lm/models/decoder_only_t5 of
// bigscience-workshop/bigscience).
#include "model/families/counted_vision.hpp"

namespace zeroplan::families {

namespace {

// The class fixes the vision backbone; the config does not name it: CLIP ViT-L/14 at 336 pixels,
// the last of its 24 layers dropped because features are those of two earlier ones.
struct MolmoVision {
  static constexpr std::int64_t kWidth = 1024;
  static constexpr std::int64_t kLayers = 23;
  static constexpr std::int64_t kIntermediate = 4096;
  static constexpr std::int64_t kPositions = 577;
  static constexpr std::int64_t kPatchPixels = std::int64_t{14} * 14 * 3;
  static constexpr std::int64_t kFeatureLayers = 2;
  static constexpr std::int64_t kNewTokens = 128;  // rows beside the vocabulary for image tokens
};

void write_molmo_vision(ModelBuilder& builder, std::int64_t hidden, std::int64_t half) {
  constexpr std::int64_t kWidth = MolmoVision::kWidth;
  constexpr std::int64_t kFeatures = MolmoVision::kFeatureLayers * kWidth;
  const auto backbone = builder.in("vision_backbone", "OLMoPretrainedVisionBackbone");
  builder.parameter("pad_embed", {2, kFeatures});
  {
    const auto tower = builder.in("image_vit", "VisionTransformer");
    builder.parameter("class_embedding", {kWidth});
    builder.parameter("positional_embedding", {MolmoVision::kPositions, kWidth});
    builder.linear("patch_embedding", MolmoVision::kPatchPixels, kWidth, false);
    builder.layer_norm("pre_ln", kWidth);
    VisionBlocks blocks;
    blocks.hidden = kWidth;
    blocks.layers = MolmoVision::kLayers;
    blocks.intermediate = MolmoVision::kIntermediate;
    write_vision_blocks(builder, "transformer", blocks);
  }
  {
    const auto pooling = builder.in("image_pooling_2d", "MultiHeadDotProductAttention");
    for (const char* name : {"wq", "wk", "wv"}) builder.linear(name, kFeatures, kWidth, true);
    builder.linear("wo", kWidth, kWidth, true);
  }
  const auto projector = builder.in("image_projector", "MLP");
  builder.linear("w1", kWidth, half, false);
  builder.linear("w2", half, hidden, false);
  builder.linear("w3", kWidth, half, false);
}

}  // namespace

Model build_molmo(const FamilyInput& input) {
  only_head(input, Head::causal_lm);
  const ConfigReader& config = input.config;
  const TextSizes sizes = read_text_sizes(config);
  GroupedAttention attention = read_attention(config);
  const std::int64_t rows =
      config.derived({"embedding_size"}, sizes.vocabulary, SizeKind::vocabulary);
  // The width before the gate halves it.
  const std::int64_t fused = config.core({"intermediate_size"}, 22016, SizeKind::width);
  if (fused % 2 != 0) config.problem("intermediate_size", "an even width", std::to_string(fused));
  const bool qkv_bias = config.flag({"qkv_bias"}, false);
  const bool query_norm = config.flag({"attention_layer_norm"}, false);
  const bool tied = config.flag({"weight_tying"}, false);
  config.note(
      "the vision backbone is not in the config: the class's CLIP ViT-L/14 at 336 pixels is "
      "counted");
  config.throw_problems();

  const std::int64_t hidden = sizes.hidden;
  const std::int64_t keys = attention.kv_heads * attention.head_dim;
  const std::int64_t queries = attention.heads * attention.head_dim;
  Model model;
  model.architecture = architecture_or(input, "MolmoForCausalLM");
  ModelBuilder builder(model.architecture);
  const auto scope = builder.in("model", "Molmo");
  {
    const auto trunk = builder.in("transformer", "ModuleDict");
    {
      const auto embedding = builder.in("wte", "Embedding");
      builder.parameter("embedding", {rows, hidden});
      builder.parameter("new_embedding", {MolmoVision::kNewTokens, hidden});
    }
    {
      const auto list = builder.in("blocks", "ModuleList");
      for (std::int64_t index = 0; index < sizes.layers; ++index) {
        const auto block = builder.in(index, "MolmoSequentialBlock");
        builder.linear("att_proj", hidden, queries + 2 * keys, qkv_bias);
        builder.linear("attn_out", queries, hidden, false);
        if (query_norm) {
          builder.norm("q_norm", queries, "RMSLayerNorm");
          builder.norm("k_norm", keys, "RMSLayerNorm");
        }
        builder.linear("ff_proj", hidden, fused, false);
        builder.linear("ff_out", fused / 2, hidden, false);
        builder.norm("attn_norm", hidden, "RMSLayerNorm");
        builder.norm("ff_norm", hidden, "RMSLayerNorm");
      }
    }
    builder.norm("ln_f", hidden, "RMSLayerNorm");
    if (!tied) builder.linear("ff_out", hidden, rows, false);
  }
  write_molmo_vision(builder, hidden, fused / 2);
  builder.move_into(model);
  return model;
}

namespace {

struct MoonVit {
  VisionBlocks blocks;
  std::int64_t patch = 0;
  std::int64_t height = 0;  // learned positions, interpolated
  std::int64_t width = 0;
  std::int64_t merge = 0;  // patches of one token
};

MoonVit read_moonvit(const ConfigReader& config) {
  MoonVit vision;
  vision.blocks.hidden = config.core({"hidden_size"}, 1152, SizeKind::width);
  vision.blocks.layers = config.core({"num_hidden_layers"}, 27, SizeKind::layers);
  vision.blocks.intermediate = config.core({"intermediate_size"}, 4304, SizeKind::width);
  vision.patch = config.size({"patch_size"}, 14, SizeKind::width);
  vision.height = config.size({"init_pos_emb_height"}, 64, SizeKind::width);
  vision.width = config.size({"init_pos_emb_width"}, 64, SizeKind::width);
  vision.merge = merged_patches(config);
  return vision;
}

}  // namespace

Model build_locateanything(const FamilyInput& input) {
  only_head(input, Head::conditional_generation);
  const ConfigReader& config = input.config;
  const auto text = need_child(config, "text_config", "Qwen2Config");
  const auto seen = need_child(config, "vision_config", "MoonViTConfig");
  config.throw_problems();
  const LlamaLike llama = read_llama_like(*text, *llama_traits("qwen2"));
  const MoonVit vision = read_moonvit(*seen);
  if (config.derived({"mlp_connector_layers"}, 2, SizeKind::layers) != 2) {
    config.problem("mlp_connector_layers", "2, as in the released model", "another number");
  }
  config.throw_problems();

  const std::int64_t hidden = vision.blocks.hidden;
  const std::int64_t text_hidden = llama.attention.hidden;
  Model model;
  model.architecture = architecture_or(input, "LocateAnythingForConditionalGeneration");
  ModelBuilder builder(model.architecture);
  {
    const auto tower = builder.in("vision_model", "MoonVitPretrainedModel");
    {
      const auto embed = builder.in("patch_embed", "MoonVisionPatchEmbed");
      write_convolution(builder, "proj", {hidden, 3, vision.patch, vision.patch}, true);
      const auto positions = builder.in("pos_emb", "Learnable2DInterpPosEmb");
      builder.parameter("weight", {vision.height, vision.width, hidden});
    }
    const auto encoder = builder.in("encoder", "MoonVitEncoder");
    write_vision_blocks(builder, "blocks", vision.blocks);
    builder.layer_norm("final_layernorm", hidden);
  }
  {
    const auto language = builder.in("language_model", "Qwen2ForCausalLM");
    int embedding = -1;
    {
      const auto trunk = builder.in("model", "Qwen2Model");
      embedding = write_llama_trunk(builder, llama);
    }
    write_language_head(builder, text_hidden, llama.vocabulary, llama.tied, embedding);
  }
  {
    const auto connector = builder.in("mlp1", "Sequential");
    builder.layer_norm("0", vision.merge * hidden);
    builder.linear("1", vision.merge * hidden, text_hidden, true);
    builder.linear("3", text_hidden, text_hidden, true);
  }
  builder.move_into(model);
  return model;
}

// T5's decoder without cross-attention. The stack is built from layers that differ from the
// encoder's only in their mask; the first block's bias serves all of them.
Model build_decoder_only_t5(const FamilyInput& input) {
  const bool with_head = !input.architecture.ends_with("T5Model");
  const ConfigReader& config = input.config;
  const std::int64_t hidden = config.core({"d_model"}, 512, SizeKind::width);
  const std::int64_t layers = config.core({"num_layers"}, 6, SizeKind::layers);
  const std::int64_t heads = config.core({"num_heads"}, 8, SizeKind::heads);
  const std::int64_t intermediate = config.core({"d_ff"}, 2048, SizeKind::width);
  const std::int64_t vocabulary = config.core({"vocab_size"}, 32128, SizeKind::vocabulary);
  const std::int64_t inner = heads * config.size({"d_kv"}, 64, SizeKind::width);
  const std::int64_t buckets =
      config.size({"relative_attention_num_buckets"}, 32, SizeKind::positions);
  const std::string feed_forward = config.text({"feed_forward_proj"}, "relu");
  if (feed_forward != "relu" && feed_forward != "gated-gelu") {
    config.problem("feed_forward_proj", "relu or gated-gelu", in_quotes(feed_forward));
  }
  const bool tied = config.flag({"tie_word_embeddings"}, true);
  config.throw_problems();

  Model model;
  model.architecture = architecture_or(input, "DecoderOnlyT5LMHeadModel");
  ModelBuilder builder(model.architecture);
  const int shared = builder.embedding("shared", vocabulary, hidden);
  {
    const auto stack = builder.in("encoder", "DecoderOnlyT5Stack");
    {
      const auto list = builder.in("block", "ModuleList");
      for (std::int64_t index = 0; index < layers; ++index) {
        const auto block = builder.in(index, "T5Block");
        for (const char* name : {"q", "k", "v"}) builder.linear(name, hidden, inner, false);
        builder.linear("o", inner, hidden, false);
        if (index == 0) builder.embedding("relative_attention_bias", buckets, heads);
        builder.norm("layer_norm", hidden, "DecoderOnlyT5LayerNorm");
        if (feed_forward == "gated-gelu") builder.linear("wi_1", hidden, intermediate, false);
        builder.linear("wi", hidden, intermediate, false);
        builder.linear("wo", intermediate, hidden, false);
        builder.norm("ff_layer_norm", hidden, "DecoderOnlyT5LayerNorm");
      }
    }
    builder.norm("final_layer_norm", hidden, "DecoderOnlyT5LayerNorm");
  }
  if (with_head) write_language_head(builder, hidden, vocabulary, tied, shared);
  builder.move_into(model);
  return model;
}

}  // namespace zeroplan::families
