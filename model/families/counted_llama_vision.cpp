// Llama 3.2 Vision (mllama), Llama 4 and GLM-4V. Tensors and defaults: transformers 5.23
// modeling_mllama.py, modeling_llama4.py, modeling_glm4v.py.
#include <algorithm>
#include <optional>

#include "model/families/counted.hpp"
#include "model/families/counted_vision.hpp"

namespace zeroplan::families {

namespace {

struct MllamaVision {
  VisionBlocks blocks;
  std::int64_t global_layers = 0;
  std::int64_t channels = 3;
  std::int64_t patch = 14;
  std::int64_t patches = 0;  // with the class token
  std::int64_t tiles = 4;
  std::int64_t ratios = 8;
  std::int64_t features = 0;  // hidden states handed on: the last and the intermediate ones
};

MllamaVision read_mllama_vision(const ConfigReader& vision) {
  MllamaVision result;
  result.blocks.hidden = vision.size({"hidden_size"}, 1280, SizeKind::width);
  result.blocks.layers = vision.size({"num_hidden_layers"}, 32, SizeKind::layers);
  result.blocks.intermediate = vision.size({"intermediate_size"}, 5120, SizeKind::width);
  result.blocks.attention_bias = false;
  result.global_layers = vision.size({"num_global_layers"}, 8, SizeKind::layers);
  result.channels = vision.derived({"num_channels"}, 3, SizeKind::width);
  result.patch = vision.size({"patch_size"}, 14, SizeKind::width);
  const std::int64_t across = vision.size({"image_size"}, 448, SizeKind::width) / result.patch;
  result.patches = across * across + 1;
  result.tiles = vision.size({"max_num_tiles"}, 4, SizeKind::width);
  const Json* ratios = vision.find({"supported_aspect_ratios"});
  if (ratios != nullptr) result.ratios = static_cast<std::int64_t>(ratios->items().size());
  const auto inner = vision.integers({"intermediate_layers_indices"});
  result.features = 1 + (inner.empty() ? 5 : static_cast<std::int64_t>(inner.size()));
  return result;
}

void write_mllama_vision(ModelBuilder& builder,
                         const MllamaVision& vision,
                         std::int64_t text_hidden) {
  const std::int64_t hidden = vision.blocks.hidden;
  {
    const auto tower = builder.in("vision_model", "MllamaVisionModel");
    builder.parameter("class_embedding", {hidden});
    write_convolution(
        builder, "patch_embedding", {hidden, vision.channels, vision.patch, vision.patch}, false);
    {
      const auto positions = builder.in("gated_positional_embedding", "PositionEmbedding");
      builder.parameter("gate", {1});
      builder.parameter("embedding", {vision.patches, hidden});
      builder.embedding(
          "tile_embedding", vision.ratios + 1, vision.tiles * vision.patches * hidden);
    }
    for (const char* name : {"pre_tile_positional_embedding", "post_tile_positional_embedding"}) {
      const auto positions = builder.in(name, "AspectRatioEmbedding");
      builder.parameter("gate", {1});
      builder.embedding("embedding", vision.ratios + 1, vision.tiles * hidden);
    }
    builder.layer_norm("layernorm_pre", hidden);
    builder.layer_norm("layernorm_post", hidden);
    write_vision_blocks(builder, "transformer", vision.blocks);
    VisionBlocks global = vision.blocks;
    global.layers = vision.global_layers;
    write_vision_blocks(builder, "global_transformer", global);
    const auto gates = builder.in("global_gates", "Gates");
    builder.parameter("gate_attn", {vision.global_layers});
    builder.parameter("gate_ffn", {vision.global_layers});
  }
  builder.linear("multi_modal_projector", hidden * vision.features, text_hidden, true);
}

}  // namespace

Model build_mllama(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  only_head(input, Head::conditional_generation);
  const auto text = need_child(config, "text_config", "MllamaTextConfig");
  const auto seen = need_child(config, "vision_config", "MllamaVisionConfig");
  config.throw_problems();
  const MllamaVision vision = read_mllama_vision(*seen);
  TextSizes sizes = read_text_sizes(*text);
  const GroupedAttention attention = read_attention(*text);
  const std::int64_t intermediate = text->size({"intermediate_size"}, 14336, SizeKind::width);
  auto crossing = text->integers({"cross_attention_layers"});
  if (!text->has({"cross_attention_layers"})) crossing = {3, 8, 13, 18, 23, 28, 33, 38};
  config.throw_problems();

  const auto write_layer = [&](ModelBuilder& b, std::int64_t layer) {
    const bool crosses = std::find(crossing.begin(), crossing.end(), layer) != crossing.end();
    GroupedAttention own = attention;
    if (crosses) {
      b.parameter("cross_attn_attn_gate", {1});
      b.parameter("cross_attn_mlp_gate", {1});
      own.query_norm = own.key_norm = own.head_dim;
    }
    write_attention(b, own);
    {
      const auto mlp = b.in("mlp", "MllamaTextMLP");
      write_gated(b, sizes.hidden, intermediate);
    }
    b.norm("input_layernorm", sizes.hidden, "RMSNorm");
    b.norm("post_attention_layernorm", sizes.hidden, "RMSNorm");
  };
  // Eight tokens for images stand in the embedding and not in the head.
  TextSizes embedded = sizes;
  embedded.vocabulary += 8;
  return counted_multimodal(
      input,
      sizes,
      [&](ModelBuilder& b) { write_mllama_vision(b, vision, sizes.hidden); },
      [&](ModelBuilder& b) { return write_text_trunk(b, embedded, write_layer); });
}

namespace {

struct Llama4Vision {
  VisionBlocks blocks;
  std::int64_t channels = 3;
  std::int64_t patch = 14;
  std::int64_t positions = 0;
  std::int64_t adapter_in = 4096;
  std::int64_t adapter_out = 4096;
  std::int64_t output = 7680;
};

// Without vision_config the class's defaults hold; `config` is then the whole config.
Llama4Vision read_llama4_vision(const ConfigReader& config, bool present) {
  Llama4Vision vision;
  if (!present) {
    config.note("vision_config is not in the config: Llama4VisionConfig's defaults were used.");
  }
  const auto read = [&](std::string_view key, std::int64_t fallback) {
    return present ? config.derived({key}, fallback, SizeKind::width) : fallback;
  };
  vision.blocks.hidden = read("hidden_size", 768);
  vision.blocks.layers = present ? config.derived({"num_hidden_layers"}, 34, SizeKind::layers) : 34;
  vision.blocks.intermediate = read("intermediate_size", 5632);
  vision.channels = read("num_channels", 3);
  vision.patch = read("patch_size", 14);
  const std::int64_t across = read("image_size", 448) / vision.patch;
  vision.positions = across * across + 1;
  vision.adapter_in = read("projector_input_dim", 4096);
  vision.adapter_out = read("projector_output_dim", 4096);
  vision.output = read("vision_output_dim", 7680);
  return vision;
}

void write_llama4_vision(ModelBuilder& builder,
                         const Llama4Vision& vision,
                         std::int64_t text_hidden) {
  const std::int64_t hidden = vision.blocks.hidden;
  {
    const auto tower = builder.in("vision_model", "Llama4VisionModel");
    builder.parameter("class_embedding", {hidden});
    builder.parameter("positional_embedding_vlm", {vision.positions, hidden});
    builder.linear("patch_embedding", vision.channels * vision.patch * vision.patch, hidden, false);
    builder.layer_norm("layernorm_pre", hidden);
    builder.layer_norm("layernorm_post", hidden);
    write_vision_blocks(builder, "layers", vision.blocks);
    const auto adapter = builder.in("vision_adapter", "Llama4VisionPixelShuffleMLP");
    builder.linear("fc1", vision.blocks.intermediate, vision.adapter_in, false);
    builder.linear("fc2", vision.adapter_in, vision.adapter_out, false);
  }
  builder.linear("multi_modal_projector", vision.output, text_hidden, false);
}

}  // namespace

Model build_llama4(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  only_head(input, Head::conditional_generation);
  const auto text = need_child(config, "text_config", "Llama4TextConfig");
  config.throw_problems();
  const auto seen = config.child({"vision_config"}, "Llama4VisionConfig");
  const Llama4Vision vision = read_llama4_vision(seen ? *seen : config, seen.has_value());
  const TextSizes sizes = read_text_sizes(*text);
  const GroupedAttention attention = read_attention(*text);
  MixtureOfExperts experts = {.hidden = sizes.hidden};
  experts.experts = text->size({"num_local_experts"}, 16, SizeKind::experts);
  experts.experts_per_token = text->size({"num_experts_per_tok"}, 1, SizeKind::experts);
  experts.intermediate = text->size({"intermediate_size"}, 8192, SizeKind::width);
  experts.shared_intermediate = experts.intermediate;
  const std::int64_t dense = text->size({"intermediate_size_mlp"}, 16384, SizeKind::width);
  const std::int64_t step = text->derived({"interleave_moe_layer_step"}, 1, SizeKind::layers);
  const auto listed = text->integers({"moe_layers"});
  config.throw_problems();

  const auto write_layer = [&](ModelBuilder& b, std::int64_t layer) {
    const bool sparse = listed.empty()
                            ? (layer + 1) % step == 0
                            : std::find(listed.begin(), listed.end(), layer) != listed.end();
    write_attention(b, attention);
    {
      const auto mlp = b.in("feed_forward", "Llama4FeedForward");
      if (sparse) {
        write_experts(b, experts);
      } else {
        write_gated(b, sizes.hidden, dense);
      }
    }
    b.norm("input_layernorm", sizes.hidden, "RMSNorm");
    b.norm("post_attention_layernorm", sizes.hidden, "RMSNorm");
  };
  return counted_multimodal(
      input,
      sizes,
      [&](ModelBuilder& b) { write_llama4_vision(b, vision, sizes.hidden); },
      [&](ModelBuilder& b) { return write_text_trunk(b, sizes, write_layer); });
}

namespace {

struct Glm4vVision {
  VisionBlocks blocks;
  std::int64_t channels = 3;
  std::int64_t patch = 14;
  std::int64_t frames = 2;
  std::int64_t merge = 2;
  std::int64_t positions = 0;
  std::int64_t merger_width = 0;
  std::int64_t output = 0;
};

Glm4vVision read_glm4v_vision(const ConfigReader& vision) {
  Glm4vVision result;
  VisionBlocks& blocks = result.blocks;
  blocks.hidden = vision.size({"hidden_size"}, 1536, SizeKind::width);
  blocks.layers = vision.size({"depth"}, 24, SizeKind::layers);
  blocks.norm_bias = blocks.mlp_bias = false;
  blocks.attention_bias = vision.flag({"attention_bias"}, false);
  blocks.gated = true;
  result.channels = vision.derived({"in_channels"}, 3, SizeKind::width);
  result.patch = vision.size({"patch_size"}, 14, SizeKind::width);
  result.frames = vision.derived({"temporal_patch_size"}, 2, SizeKind::width);
  result.merge = vision.derived({"spatial_merge_size"}, 2, SizeKind::width);
  const std::int64_t across = vision.size({"image_size"}, 336, SizeKind::width) / result.patch;
  result.positions = across * across;
  result.output = vision.size({"out_hidden_size"}, 4096, SizeKind::width);
  // The blocks are as wide as the output; intermediate_size is the merger's.
  blocks.intermediate = result.output;
  result.merger_width = vision.size({"intermediate_size"}, 13696, SizeKind::width);
  return result;
}

void write_glm4v_vision(ModelBuilder& builder, const Glm4vVision& vision) {
  const std::int64_t hidden = vision.blocks.hidden;
  const auto scope = builder.in("visual", "Glm4vVisionModel");
  builder.embedding("position_embedding", vision.positions, hidden);
  write_convolution(builder,
                    "patch_embed",
                    {hidden, vision.channels, vision.frames, vision.patch, vision.patch},
                    true);
  write_vision_blocks(builder, "blocks", vision.blocks);
  {
    const auto merger = builder.in("merger", "Glm4vVisionPatchMerger");
    builder.linear("proj", vision.output, vision.output, false);
    builder.layer_norm("post_projection_norm", vision.output);
    write_gated(builder, vision.output, vision.merger_width);
  }
  builder.norm("post_conv_layernorm", hidden, "RMSNorm");
  write_convolution(
      builder, "downsample", {vision.output, hidden, vision.merge, vision.merge}, true);
  builder.norm("post_layernorm", hidden, "RMSNorm");
}

}  // namespace

Model build_glm4v(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  only_head(input, Head::conditional_generation);
  const auto seen = need_child(config, "vision_config", "Glm4vVisionConfig");
  config.throw_problems();
  const auto nested = config.child({"text_config"}, "Glm4vTextConfig");
  const ConfigReader& text = nested ? *nested : config;
  const Glm4vVision vision = read_glm4v_vision(*seen);
  const TextSizes sizes = read_text_sizes(text);
  GroupedAttention attention = read_attention(text);
  attention.qkv_bias = text.flag({"attention_bias"}, true);
  attention.output_bias = false;
  const std::int64_t intermediate = text.size({"intermediate_size"}, 13696, SizeKind::width);
  config.throw_problems();
  const auto write_layer = [&](ModelBuilder& b, std::int64_t) {
    write_attention(b, attention);
    {
      const auto mlp = b.in("mlp", "Glm4vTextMLP");
      b.linear("gate_up_proj", sizes.hidden, 2 * intermediate, false);
      b.linear("down_proj", intermediate, sizes.hidden, false);
    }
    for (const char* name : {"input_layernorm",
                             "post_attention_layernorm",
                             "post_self_attn_layernorm",
                             "post_mlp_layernorm"}) {
      b.norm(name, sizes.hidden, "RMSNorm");
    }
  };
  return counted_multimodal(
      input,
      sizes,
      [&](ModelBuilder& b) { write_glm4v_vision(b, vision); },
      [&](ModelBuilder& b) { return write_text_trunk(b, sizes, write_layer); });
}

}  // namespace zeroplan::families
