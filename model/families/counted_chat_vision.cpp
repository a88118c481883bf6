// MiniCPM-V 4.6 (transformers 5.23 modeling_minicpmv4_6.py) and InternVL-Chat
// (modeling_intern_vit.py, modeling_internvl_chat.py and modeling_internlm2.py of
// OpenGVLab/InternVL2-2B).
#include "model/families/counted_hybrid.hpp"
#include "model/families/counted_vision.hpp"

namespace zeroplan::families {

std::optional<ConfigReader> need_child(const ConfigReader& config,
                                       std::string_view key,
                                       std::string_view family) {
  auto child = config.child({key}, std::string(family));
  if (!child) config.problem(key, "the config of that part", "no such key");
  return child;
}

PatchedVision read_patched_vision(const ConfigReader& config,
                                  bool class_token,
                                  const PatchedDefaults& defaults) {
  PatchedVision vision;
  vision.blocks.hidden = config.core({"hidden_size"}, defaults.hidden, SizeKind::width);
  vision.blocks.layers = config.core({"num_hidden_layers"}, defaults.layers, SizeKind::layers);
  vision.blocks.intermediate =
      config.core({"intermediate_size"}, defaults.intermediate, SizeKind::width);
  vision.channels = config.derived({"num_channels"}, 3, SizeKind::width);
  vision.patch = config.size({"patch_size"}, defaults.patch, SizeKind::width);
  const std::int64_t image = config.size({"image_size"}, defaults.image, SizeKind::width);
  if (image < vision.patch) {
    config.problem(
        "image_size", phrase("at least one patch, {}", vision.patch), std::to_string(image));
  }
  const std::int64_t across = image / vision.patch;
  vision.positions = across * across + (class_token ? 1 : 0);
  return vision;
}

std::int64_t merged_patches(const ConfigReader& config) {
  const auto sides = config.integers({"merge_kernel_size"});
  if (sides.empty()) return 4;
  const auto fits = [](std::int64_t side) { return side >= 1 && side <= 64; };
  if (sides.size() != 2 || !fits(sides[0]) || !fits(sides[1])) {
    config.problem(
        "merge_kernel_size", "two sides from 1 to 64", config.find({"merge_kernel_size"})->dump());
    return 4;
  }
  return sides[0] * sides[1];
}

void write_patch_embedding(ModelBuilder& builder, const PatchedVision& vision) {
  write_convolution(builder,
                    "patch_embedding",
                    {vision.blocks.hidden, vision.channels, vision.patch, vision.patch},
                    true);
  builder.embedding("position_embedding", vision.positions, vision.blocks.hidden);
}

Model build_minicpmv4_6(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  only_head(input, Head::conditional_generation);
  const auto text = need_child(config, "text_config", "Qwen3_5TextConfig");
  const auto seen = need_child(config, "vision_config", "MiniCPMV4_6VisionConfig");
  config.throw_problems();
  HybridDecoder decoder = read_hybrid_decoder(*text);
  decoder.text.tied =
      config.flag({"tie_word_embeddings"}, text->flag({"tie_word_embeddings"}, false));
  const PatchedVision vision = read_patched_vision(*seen, false);
  const std::int64_t merges = config.derived({"merger_times"}, 1, SizeKind::layers);
  config.throw_problems();

  Model model;
  model.architecture = architecture_or(input, "MiniCPMV4_6ForConditionalGeneration");
  ModelBuilder builder(model.architecture);
  const std::int64_t hidden = vision.blocks.hidden;
  const std::int64_t merged = 4 * hidden;  // windows and merges of 2 x 2 patches
  int embedding = -1;
  {
    const auto scope = builder.in("model", "MiniCPMV4_6Model");
    {
      const auto tower = builder.in("vision_tower", "MiniCPMV4_6VisionModel");
      write_patch_embedding(builder, vision);
      write_vision_blocks(builder, "layers", vision.blocks);
      builder.layer_norm("post_layernorm", hidden);
      const auto merger = builder.in("vit_merger", "MiniCPMV4_6ViTWindowMerger");
      builder.linear("qkv", hidden, 3 * hidden, true);
      builder.linear("out_proj", hidden, hidden, true);
      builder.layer_norm("layer_norm1", hidden);
      builder.layer_norm("pre_norm", merged);
      builder.linear("linear_1", merged, 4 * vision.blocks.intermediate, true);
      builder.linear("linear_2", 4 * vision.blocks.intermediate, hidden, true);
    }
    {
      const auto language = builder.in("language_model", "Qwen3_5TextModel");
      embedding = write_hybrid_trunk(builder, decoder);
    }
    const auto merger = builder.in("merger", "MiniCPMV4_6Merger");
    for (std::int64_t index = 0; index < merges; ++index) {
      const auto one = builder.in(index, "MiniCPMV4_6DownsampleMLP");
      const bool last = index + 1 == merges;
      builder.layer_norm("pre_norm", merged);
      builder.linear("linear_1", merged, merged, true);
      builder.linear("linear_2", merged, last ? decoder.text.hidden : hidden, true);
    }
  }
  write_language_head(
      builder, decoder.text.hidden, decoder.text.vocabulary, decoder.text.tied, embedding);
  builder.move_into(model);
  return model;
}

namespace {

// InternViT: blocks with a scale vector on each residual.
void write_intern_vit(ModelBuilder& builder, const PatchedVision& vision) {
  const std::int64_t hidden = vision.blocks.hidden;
  const auto scope = builder.in("vision_model", "InternVisionModel");
  builder.parameter("class_embedding", {1, 1, hidden});
  write_patch_embedding(builder, vision);
  write_vision_blocks(builder, "layers", vision.blocks);
  const auto scales = builder.in("scales", "LayerScales");
  builder.parameter("ls1", {vision.blocks.layers, hidden});
  builder.parameter("ls2", {vision.blocks.layers, hidden});
}

}  // namespace

Model build_internvl_chat(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  const auto text = need_child(config, "llm_config", "InternLM2Config");
  const auto seen = need_child(config, "vision_config", "InternVisionConfig");
  config.throw_problems();
  const std::string text_type = text->text({"model_type"}, "");
  if (text_type != "internlm2" && text_type != "llama") {
    text->problem("model_type", "internlm2 or llama", in_quotes(text_type));
  }
  const TextSizes sizes = read_text_sizes(*text);
  GroupedAttention attention = read_attention(*text);
  attention.qkv_bias = attention.output_bias = text->flag({"bias", "attention_bias"}, false);
  const std::int64_t intermediate = text->core({"intermediate_size"}, 11008, SizeKind::width);
  PatchedVision vision = read_patched_vision(*seen, true);
  const bool query_norm = seen->flag({"qk_normalization"}, false);
  if (query_norm) seen->problem("qk_normalization", "false, as in InternViT-300M", "true");
  vision.blocks.norm_bias = seen->text({"norm_type"}, "layer_norm") == "layer_norm";
  if (!seen->flag({"qkv_bias"}, true)) seen->problem("qkv_bias", "true", "false");
  config.throw_problems();

  Model model;
  model.architecture = architecture_or(input, "InternVLChatModel");
  ModelBuilder builder(model.architecture);
  write_intern_vit(builder, vision);
  int embedding = -1;
  {
    const auto language = builder.in("language_model", "InternLM2ForCausalLM");
    {
      const auto trunk = builder.in("model", "InternLM2Model");
      embedding = write_text_trunk(builder, sizes, [&](ModelBuilder& b, std::int64_t) {
        write_attention(b, attention);
        {
          const auto mlp = b.in("feed_forward", "InternLM2MLP");
          write_gated(b, sizes.hidden, intermediate);
        }
        b.norm("attention_norm", sizes.hidden, "InternLM2RMSNorm");
        b.norm("ffn_norm", sizes.hidden, "InternLM2RMSNorm");
      });
    }
    write_language_head(builder, sizes.hidden, sizes.vocabulary, sizes.tied, embedding);
  }
  {
    // downsample_ratio 0.5: four patches become one.
    const auto projector = builder.in("mlp1", "Sequential");
    builder.layer_norm("0", 4 * vision.blocks.hidden);
    builder.linear("1", 4 * vision.blocks.hidden, sizes.hidden, true);
    builder.linear("3", sizes.hidden, sizes.hidden, true);
  }
  builder.move_into(model);
  return model;
}

}  // namespace zeroplan::families
