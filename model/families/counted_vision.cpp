// Multimodal models: a counted language model and the encoders beside it. Tensors: transformers
// 5.23 modeling_qwen2_vl.py, modeling_qwen2_5_vl.py, modeling_qwen3_vl.py,
// modeling_qwen3_vl_moe.py, modeling_qwen3_5.py, modeling_qwen3_5_moe.py, modeling_kimi_k25.py,
// modeling_clip.py, modeling_qwen2_audio.py; defaults of the vision configs from the configuration
// files beside them.
#include "model/families/counted_vision.hpp"

#include "model/families/counted_hybrid.hpp"
#include "model/families/counted_mla.hpp"

namespace zeroplan::families {

ConfigReader text_of(const FamilyInput& input) {
  if (const auto nested = input.config.child({"text_config"}, input.config.family())) {
    return *nested;
  }
  return input.config;
}

bool tied_of(const ConfigReader& config, const ConfigReader& text) {
  return config.flag({"tie_word_embeddings"}, text.flag({"tie_word_embeddings"}, false));
}

namespace {

// One linear layer pair that merges merge x merge patches.
void write_merger(ModelBuilder& builder,
                  std::string_view name,
                  std::int64_t norm_width,
                  bool norm_bias,
                  std::int64_t width,
                  std::int64_t output) {
  const auto scope = builder.in(name, "PatchMerger");
  if (norm_bias) {
    builder.layer_norm("norm", norm_width);
  } else {
    builder.norm("norm", norm_width, "RMSNorm");
  }
  builder.linear("linear_fc1", width, width, true);
  builder.linear("linear_fc2", width, output, true);
}

}  // namespace

PatchVision read_qwen2_vision(const ConfigReader& config, bool newer, std::int64_t text_hidden) {
  PatchVision vision;
  VisionBlocks& blocks = vision.blocks;
  vision.output = text_hidden;
  const auto reader =
      config.child({"vision_config"}, newer ? "Qwen2_5_VLVisionConfig" : "Qwen2VLVisionConfig");
  if (!reader) {
    config.problem("vision_config", "the vision encoder's config", "no such key");
    return vision;
  }
  blocks.layers = reader->size({"depth"}, 32, SizeKind::layers);
  vision.channels = reader->derived({"in_channels", "in_chans"}, 3, SizeKind::width);
  vision.patch = reader->derived({"patch_size", "spatial_patch_size"}, 14, SizeKind::width);
  vision.frames = reader->derived({"temporal_patch_size"}, 2, SizeKind::width);
  vision.merge = reader->derived({"spatial_merge_size"}, 2, SizeKind::width);
  if (newer) {
    blocks.hidden = reader->size({"hidden_size"}, 3584, SizeKind::width);
    blocks.intermediate = reader->size({"intermediate_size"}, 3420, SizeKind::width);
    blocks.norm_bias = false;
    blocks.gated = true;
    vision.output = reader->derived({"out_hidden_size"}, 3584, SizeKind::width);
  } else {
    // hidden_size is the output's width here; embed_dim the encoder's.
    blocks.hidden = reader->size({"embed_dim"}, 1280, SizeKind::width);
    blocks.intermediate = blocks.hidden * reader->derived({"mlp_ratio"}, 4, SizeKind::width);
    vision.output = reader->derived({"hidden_size"}, 3584, SizeKind::width);
  }
  return vision;
}

void write_qwen2_vision(ModelBuilder& builder, const PatchVision& vision) {
  const std::int64_t hidden = vision.blocks.hidden;
  const auto scope = builder.in("visual", "VisionTransformer");
  {
    const auto embed = builder.in("patch_embed", "PatchEmbed");
    write_convolution(builder,
                      "proj",
                      {hidden, vision.channels, vision.frames, vision.patch, vision.patch},
                      false);
  }
  write_vision_blocks(builder, "blocks", vision.blocks);
  write_merger(builder,
               "merger",
               hidden,
               vision.blocks.norm_bias,
               hidden * vision.merge * vision.merge,
               vision.output);
}

namespace {

struct Qwen3Vision {
  PatchVision patches;
  std::int64_t positions = 0;
  std::int64_t deep_mergers = 0;  // deepstack: features of some layers enter the language model
};

Qwen3Vision read_qwen3_vision(const ConfigReader& config, bool deep) {
  Qwen3Vision vision;
  const auto reader = config.child({"vision_config"}, "Qwen3VLVisionConfig");
  if (!reader) {
    config.problem("vision_config", "the vision encoder's config", "no such key");
    return vision;
  }
  VisionBlocks& blocks = vision.patches.blocks;
  blocks.hidden = reader->size({"hidden_size"}, 1152, SizeKind::width);
  blocks.layers = reader->size({"depth"}, 27, SizeKind::layers);
  blocks.intermediate = reader->size({"intermediate_size"}, 4304, SizeKind::width);
  vision.patches.channels = reader->derived({"in_channels"}, 3, SizeKind::width);
  vision.patches.patch = reader->derived({"patch_size"}, 16, SizeKind::width);
  vision.patches.frames = reader->derived({"temporal_patch_size"}, 2, SizeKind::width);
  vision.patches.merge = reader->derived({"spatial_merge_size"}, 2, SizeKind::width);
  vision.patches.output = reader->size({"out_hidden_size"}, 3584, SizeKind::width);
  vision.positions = reader->size({"num_position_embeddings"}, 2304, SizeKind::positions);
  if (deep) {
    const auto indexes = reader->integers({"deepstack_visual_indexes"});
    // Qwen3VLVisionConfig's default is [8, 16, 24].
    vision.deep_mergers =
        reader->has({"deepstack_visual_indexes"}) ? static_cast<std::int64_t>(indexes.size()) : 3;
  }
  return vision;
}

void write_qwen3_vision(ModelBuilder& builder, const Qwen3Vision& vision) {
  const PatchVision& patches = vision.patches;
  const std::int64_t hidden = patches.blocks.hidden;
  const std::int64_t merged = hidden * patches.merge * patches.merge;
  const auto scope = builder.in("visual", "VisionModel");
  {
    const auto embed = builder.in("patch_embed", "PatchEmbed");
    write_convolution(builder,
                      "proj",
                      {hidden, patches.channels, patches.frames, patches.patch, patches.patch},
                      true);
  }
  builder.embedding("pos_embed", vision.positions, hidden);
  write_vision_blocks(builder, "blocks", patches.blocks);
  write_merger(builder, "merger", hidden, true, merged, patches.output);
  if (vision.deep_mergers > 0) {
    const auto list = builder.in("deepstack_merger_list", "ModuleList");
    for (std::int64_t index = 0; index < vision.deep_mergers; ++index) {
      write_merger(builder, std::to_string(index), merged, true, merged, patches.output);
    }
  }
}

// model (visual, language_model) and lm_head, the layout of all of them.
template <typename Vision, typename Text>
Model write_multimodal(const FamilyInput& input, const TextSizes& text, Vision vision, Text trunk) {
  only_head(input, Head::conditional_generation);
  input.config.throw_problems();
  return counted_multimodal(input, text, vision, trunk);
}

// A vision model around a decoder that is planned on its own.
template <typename Vision>
Model around_llama_like(const FamilyInput& input, std::string_view text_type, Vision vision) {
  const ConfigReader text = text_of(input);
  LlamaLike llama = read_llama_like(text, *llama_traits(text_type));
  const TextSizes sizes = {
      llama.attention.hidden, llama.layers, llama.vocabulary, tied_of(input.config, text)};
  return write_multimodal(input, sizes, vision, [&](ModelBuilder& builder) {
    return write_llama_trunk(builder, llama);
  });
}

}  // namespace

Model build_qwen2_vl(const FamilyInput& input) {
  const ConfigReader text = text_of(input);
  const std::int64_t hidden = text.derived({"hidden_size"}, 8192, SizeKind::width);
  const PatchVision vision =
      read_qwen2_vision(input.config, input.model_type == "qwen2_5_vl", hidden);
  return around_llama_like(input, "qwen2", [&](ModelBuilder& b) { write_qwen2_vision(b, vision); });
}

Model build_qwen3_vl(const FamilyInput& input) {
  const Qwen3Vision vision = read_qwen3_vision(input.config, true);
  return around_llama_like(input,
                           input.model_type == "qwen3_vl_moe" ? "qwen3_moe" : "qwen3",
                           [&](ModelBuilder& b) { write_qwen3_vision(b, vision); });
}

Model build_qwen3_5(const FamilyInput& input) {
  const Qwen3Vision vision = read_qwen3_vision(input.config, false);
  const ConfigReader text = text_of(input);
  HybridDecoder decoder = read_hybrid_decoder(text);
  decoder.text.tied = tied_of(input.config, text);
  return write_multimodal(
      input,
      decoder.text,
      [&](ModelBuilder& b) { write_qwen3_vision(b, vision); },
      [&](ModelBuilder& b) { return write_hybrid_trunk(b, decoder); });
}

void write_whisper_layers(ModelBuilder& builder, const WhisperLayers& encoder) {
  const auto list = builder.in("layers", "ModuleList");
  for (std::int64_t index = 0; index < encoder.layers; ++index) {
    const auto layer = builder.in(index, "AudioEncoderLayer");
    builder.linear("k_proj", encoder.hidden, encoder.hidden, encoder.key_bias);
    for (const char* name : {"v_proj", "q_proj", "out_proj"}) {
      builder.linear(name, encoder.hidden, encoder.hidden, true);
    }
    builder.layer_norm("self_attn_layer_norm", encoder.hidden);
    builder.linear("fc1", encoder.hidden, encoder.intermediate, true);
    builder.linear("fc2", encoder.intermediate, encoder.hidden, true);
    builder.layer_norm("final_layer_norm", encoder.hidden);
  }
}

// Kimi-K2.5: a DeepSeek-V3 decoder behind MoonViT.
Model build_kimi_k25(const FamilyInput& input) {
  const ConfigReader text = text_of(input);
  LatentDecoder decoder = read_latent_decoder(text, false, true);
  decoder.text.tied = tied_of(input.config, text);
  VisionBlocks blocks;
  std::int64_t patch = 14;
  std::int64_t height = 64;
  std::int64_t width = 64;
  const std::int64_t merge = 4;  // merge_kernel_size 2 x 2
  if (const auto vision = input.config.child({"vision_config"}, "KimiK25VisionConfig")) {
    blocks.hidden = vision->size({"vt_hidden_size", "hidden_size"}, 1152, SizeKind::width);
    blocks.layers =
        vision->size({"vt_num_hidden_layers", "num_hidden_layers"}, 27, SizeKind::layers);
    blocks.intermediate =
        vision->size({"vt_intermediate_size", "intermediate_size"}, 4304, SizeKind::width);
    patch = vision->derived({"patch_size"}, 14, SizeKind::width);
    height = vision->size({"init_pos_emb_height"}, 64, SizeKind::width);
    width = vision->size({"init_pos_emb_width"}, 64, SizeKind::width);
  } else {
    input.config.problem("vision_config", "the vision encoder's config", "no such key");
  }
  const auto write_vision = [&](ModelBuilder& builder) {
    {
      const auto tower = builder.in("vision_tower", "VisionModel");
      {
        const auto embed = builder.in("patch_embed", "PatchEmbed");
        write_convolution(builder, "proj", {blocks.hidden, 3, patch, patch}, true);
        const auto positions = builder.in("pos_emb", "PositionEmbedding");
        builder.parameter("position_embeddings", {height, width, blocks.hidden});
      }
      write_vision_blocks(builder, "layers", blocks);
      builder.layer_norm("final_layernorm", blocks.hidden);
    }
    const auto projector = builder.in("mm_projector", "MultiModalProjector");
    builder.layer_norm("pre_norm", blocks.hidden);
    builder.linear("in_proj", merge * blocks.hidden, merge * blocks.hidden, true);
    builder.linear("out_proj", merge * blocks.hidden, decoder.text.hidden, true);
  };
  return write_multimodal(input, decoder.text, write_vision, [&](ModelBuilder& builder) {
    return write_latent_trunk(builder, decoder);
  });
}

// Qwen2-Audio: a Whisper encoder in front of a qwen2 decoder.
Model build_qwen2_audio(const FamilyInput& input) {
  std::int64_t hidden = 1280;
  std::int64_t layers = 32;
  std::int64_t intermediate = 5120;
  std::int64_t bins = 128;
  std::int64_t positions = 1500;
  if (const auto audio = input.config.child({"audio_config"}, "Qwen2AudioEncoderConfig")) {
    hidden = audio->size({"d_model"}, 1280, SizeKind::width);
    layers = audio->size({"encoder_layers"}, 32, SizeKind::layers);
    intermediate = audio->size({"encoder_ffn_dim"}, 5120, SizeKind::width);
    bins = audio->size({"num_mel_bins"}, 128, SizeKind::width);
    positions = audio->size({"max_source_positions"}, 1500, SizeKind::positions);
  } else {
    input.config.problem("audio_config", "the audio encoder's config", "no such key");
  }
  const ConfigReader text = text_of(input);
  const std::int64_t text_hidden = text.derived({"hidden_size"}, 4096, SizeKind::width);
  const auto write_audio = [&](ModelBuilder& builder) {
    {
      const auto tower = builder.in("audio_tower", "Qwen2AudioEncoder");
      write_convolution(builder, "conv1", {hidden, bins, 3}, true);
      write_convolution(builder, "conv2", {hidden, hidden, 3}, true);
      builder.embedding("embed_positions", positions, hidden);
      write_whisper_layers(builder, {hidden, layers, intermediate});
      builder.layer_norm("layer_norm", hidden);
    }
    const auto projector = builder.in("multi_modal_projector", "MultiModalProjector");
    builder.linear("linear", hidden, text_hidden, true);
  };
  return around_llama_like(input, "qwen2", write_audio);
}

namespace {

struct ClipSide {
  VisionBlocks blocks;
  std::int64_t vocabulary = 0;  // text
  std::int64_t positions = 0;
  std::int64_t patch = 0;  // vision
};

ClipSide read_clip_side(const ConfigReader& config, bool text) {
  ClipSide side;
  const auto reader = config.child({text ? "text_config" : "vision_config"},
                                   text ? "CLIPTextConfig" : "CLIPVisionConfig");
  if (!reader) {
    config.problem(text ? "text_config" : "vision_config", "the encoder's config", "no such key");
    return side;
  }
  side.blocks.hidden = reader->size({"hidden_size"}, text ? 512 : 768, SizeKind::width);
  side.blocks.layers = reader->size({"num_hidden_layers"}, 12, SizeKind::layers);
  side.blocks.intermediate =
      reader->size({"intermediate_size"}, text ? 2048 : 3072, SizeKind::width);
  if (text) {
    side.vocabulary = reader->size({"vocab_size"}, 49408, SizeKind::vocabulary);
    side.positions = reader->size({"max_position_embeddings"}, 77, SizeKind::positions);
  } else {
    side.patch = reader->size({"patch_size"}, 32, SizeKind::width);
    const std::int64_t across = reader->size({"image_size"}, 224, SizeKind::width) / side.patch;
    side.positions = across * across + 1;
  }
  return side;
}

}  // namespace

Model build_clip(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  only_head(input, Head::base);
  const ClipSide text = read_clip_side(config, true);
  const ClipSide vision = read_clip_side(config, false);
  const std::int64_t projection = config.size({"projection_dim"}, 512, SizeKind::width);
  config.throw_problems();
  Model model;
  model.architecture = "CLIPModel";
  ModelBuilder builder(model.architecture);
  builder.parameter("logit_scale", {});
  {
    const auto scope = builder.in("text_model", "CLIPTextTransformer");
    builder.embedding("token_embedding", text.vocabulary, text.blocks.hidden);
    builder.embedding("position_embedding", text.positions, text.blocks.hidden);
    write_vision_blocks(builder, "layers", text.blocks);
    builder.layer_norm("final_layer_norm", text.blocks.hidden);
  }
  {
    const std::int64_t hidden = vision.blocks.hidden;
    const auto scope = builder.in("vision_model", "CLIPVisionTransformer");
    builder.parameter("class_embedding", {hidden});
    write_convolution(builder, "patch_embedding", {hidden, 3, vision.patch, vision.patch}, false);
    builder.embedding("position_embedding", vision.positions, hidden);
    builder.layer_norm("pre_layrnorm", hidden);
    write_vision_blocks(builder, "layers", vision.blocks);
    builder.layer_norm("post_layernorm", hidden);
  }
  builder.linear("visual_projection", vision.blocks.hidden, projection, false);
  builder.linear("text_projection", text.blocks.hidden, projection, false);
  builder.move_into(model);
  return model;
}

}  // namespace zeroplan::families
