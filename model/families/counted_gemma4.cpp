// Gemma 4: sliding and full layers with their own heads, keys shared by the last layers, perhaps
// experts and per-layer embeddings, vision and audio encoders. Tensors and defaults: transformers
// 5.23 modeling_gemma4.py, configuration_gemma4.py.
#include <algorithm>
#include <string>
#include <vector>

#include "model/families/counted.hpp"

namespace zeroplan::families {

namespace {

struct Gemma4Text {
  TextSizes sizes;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t global_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t global_head_dim = 0;
  bool keys_are_values = false;    // full layers have no v_proj
  std::int64_t shared_layers = 0;  // the last ones use an earlier layer's keys and values
  std::int64_t intermediate = 0;
  bool double_wide = false;    // twice the width in the layers that share keys
  std::int64_t per_layer = 0;  // width of the embedding a layer of its own gets, 0: none
  std::int64_t per_layer_vocabulary = 0;
  std::vector<bool> full;
  MixtureOfExperts experts;
};

Gemma4Text read_text(const ConfigReader& config) {
  Gemma4Text text;
  text.sizes = read_text_sizes(config);
  text.heads = config.core({"num_attention_heads"}, 8, SizeKind::heads);
  text.kv_heads = config.core({"num_key_value_heads"}, 4, SizeKind::heads);
  text.head_dim = config.size({"head_dim"}, 256, SizeKind::width);
  text.global_head_dim = config.size({"global_head_dim"}, 512, SizeKind::width);
  text.keys_are_values = config.flag({"attention_k_eq_v"}, false);
  text.global_kv_heads =
      text.keys_are_values
          ? config.derived({"num_global_key_value_heads"}, text.kv_heads, SizeKind::heads)
          : text.kv_heads;
  text.shared_layers = config.count({"num_kv_shared_layers"}, 0, SizeKind::layers);
  text.intermediate = config.core({"intermediate_size"}, 6144, SizeKind::width);
  text.double_wide = config.flag({"use_double_wide_mlp"}, false);
  text.per_layer = config.count({"hidden_size_per_layer_input"}, 256, SizeKind::width);
  text.per_layer_vocabulary =
      config.derived({"vocab_size_per_layer_input"}, text.sizes.vocabulary, SizeKind::vocabulary);
  const auto types = config.texts({"layer_types"});
  if (types.size() != static_cast<std::size_t>(text.sizes.layers)) {
    config.problem(
        "layer_types",
        phrase("sliding_attention or full_attention for each of {} layers", text.sizes.layers),
        phrase("a list of {}", types.size()));
  }
  text.full.assign(static_cast<std::size_t>(text.sizes.layers), false);
  for (std::size_t layer = 0; layer < std::min(types.size(), text.full.size()); ++layer) {
    text.full[layer] = types[layer] == "full_attention";
  }
  if (config.flag({"enable_moe_block"}, false)) {
    text.experts.hidden = text.sizes.hidden;
    text.experts.experts = config.core({"num_experts"}, 128, SizeKind::experts);
    text.experts.experts_per_token =
        config.core({"top_k_experts", "num_experts_per_tok"}, 8, SizeKind::experts);
    text.experts.intermediate =
        config.core({"moe_intermediate_size", "expert_intermediate_size"}, 704, SizeKind::width);
  }
  return text;
}

void write_text_attention(ModelBuilder& builder, const Gemma4Text& text, bool full, bool shares) {
  const std::int64_t dim = full ? text.global_head_dim : text.head_dim;
  const std::int64_t keys = (full ? text.global_kv_heads : text.kv_heads) * dim;
  const std::int64_t hidden = text.sizes.hidden;
  const auto scope = builder.in("self_attn", "Gemma4TextAttention");
  builder.linear("q_proj", hidden, text.heads * dim, false);
  builder.norm("q_norm", dim, "Gemma4RMSNorm");
  if (!shares) {
    builder.norm("k_norm", dim, "Gemma4RMSNorm");
    builder.linear("k_proj", hidden, keys, false);
    if (!(full && text.keys_are_values)) builder.linear("v_proj", hidden, keys, false);
  }
  builder.linear("o_proj", text.heads * dim, hidden, false);
}

void write_layer(ModelBuilder& builder, const Gemma4Text& text, std::int64_t layer) {
  const std::int64_t hidden = text.sizes.hidden;
  const bool shares = layer >= text.sizes.layers - text.shared_layers;
  write_text_attention(builder, text, text.full[static_cast<std::size_t>(layer)], shares);
  {
    const auto mlp = builder.in("mlp", "Gemma4TextMLP");
    write_gated(builder, hidden, text.intermediate * (shares && text.double_wide ? 2 : 1));
  }
  for (const char* name : {"input_layernorm",
                           "post_attention_layernorm",
                           "pre_feedforward_layernorm",
                           "post_feedforward_layernorm"}) {
    builder.norm(name, hidden, "Gemma4RMSNorm");
  }
  if (text.per_layer > 0) {
    builder.linear("per_layer_input_gate", hidden, text.per_layer, false);
    builder.linear("per_layer_projection", text.per_layer, hidden, false);
    builder.norm("post_per_layer_input_norm", hidden, "Gemma4RMSNorm");
  }
  if (text.experts.experts == 0) return;
  {
    const auto router = builder.in("router", "Gemma4TextRouter");
    builder.parameter("scale", {hidden});
    builder.parameter("per_expert_scale", {text.experts.experts});
  }
  const auto moe = builder.in("moe", "Gemma4TextExperts");
  write_experts(builder, text.experts);
  for (const char* name : {"post_feedforward_layernorm_1",
                           "post_feedforward_layernorm_2",
                           "pre_feedforward_layernorm_2"}) {
    builder.norm(name, hidden, "Gemma4RMSNorm");
  }
}

int write_text(ModelBuilder& builder, const Gemma4Text& text) {
  const int embedding =
      write_text_trunk(builder, text.sizes, [&](ModelBuilder& b, std::int64_t layer) {
        write_layer(b, text, layer);
      });
  if (text.per_layer > 0) {
    const std::int64_t width = text.sizes.layers * text.per_layer;
    builder.embedding("embed_tokens_per_layer", text.per_layer_vocabulary, width);
    builder.linear("per_layer_model_projection", text.sizes.hidden, width, false);
    builder.norm("per_layer_projection_norm", text.per_layer, "Gemma4RMSNorm");
  }
  return embedding;
}

// The vision tower and its projection, when the config has one.
void write_vision(ModelBuilder& builder, const ConfigReader& vision, std::int64_t text_hidden) {
  const std::int64_t hidden = vision.size({"hidden_size"}, 768, SizeKind::width);
  const std::int64_t heads = vision.size({"num_attention_heads"}, 12, SizeKind::heads);
  const std::int64_t kv_heads = vision.derived({"num_key_value_heads"}, heads, SizeKind::heads);
  const std::int64_t dim = vision.size({"head_dim"}, 64, SizeKind::width);
  const std::int64_t layers = vision.size({"num_hidden_layers"}, 16, SizeKind::layers);
  const std::int64_t width = vision.size({"intermediate_size"}, 3072, SizeKind::width);
  const std::int64_t patch = vision.size({"patch_size"}, 16, SizeKind::width);
  const std::int64_t positions =
      vision.size({"position_embedding_size"}, 10240, SizeKind::positions);
  vision.throw_problems();
  {
    const auto tower = builder.in("vision_tower", "Gemma4VisionModel");
    {
      const auto embedder = builder.in("patch_embedder", "Gemma4VisionPatchEmbedder");
      builder.parameter("position_embedding_table", {2, positions, hidden});
      builder.linear("input_proj", 3 * patch * patch, hidden, false);
    }
    const auto list = builder.in("layers", "ModuleList");
    for (std::int64_t index = 0; index < layers; ++index) {
      const auto layer = builder.in(index, "Gemma4VisionEncoderLayer");
      write_attention(builder,
                      {.hidden = hidden,
                       .heads = heads,
                       .kv_heads = kv_heads,
                       .head_dim = dim,
                       .query_norm = dim,
                       .key_norm = dim});
      {
        const auto mlp = builder.in("mlp", "Gemma4VisionMLP");
        write_gated(builder, hidden, width);
      }
      for (const char* name : {"input_layernorm",
                               "post_attention_layernorm",
                               "pre_feedforward_layernorm",
                               "post_feedforward_layernorm"}) {
        builder.norm(name, hidden, "Gemma4RMSNorm");
      }
    }
  }
  const auto embed = builder.in("embed_vision", "Gemma4MultimodalEmbedder");
  builder.linear("embedding_projection", hidden, text_hidden, false);
}

// Half a feed-forward of the conformer.
void write_audio_feed_forward(ModelBuilder& builder, std::string_view name, std::int64_t hidden) {
  const auto scope = builder.in(name, "Gemma4AudioFeedForward");
  builder.linear("ffw_layer_1", hidden, 4 * hidden, false);
  builder.linear("ffw_layer_2", 4 * hidden, hidden, false);
  builder.norm("pre_layer_norm", hidden, "Gemma4RMSNorm");
  builder.norm("post_layer_norm", hidden, "Gemma4RMSNorm");
}

void write_audio_layer(ModelBuilder& builder,
                       std::int64_t hidden,
                       std::int64_t heads,
                       std::int64_t kernel) {
  write_audio_feed_forward(builder, "feed_forward1", hidden);
  write_audio_feed_forward(builder, "feed_forward2", hidden);
  {
    const auto attention = builder.in("self_attn", "Gemma4AudioAttention");
    builder.parameter("per_dim_scale", {hidden / heads});
    for (const char* name : {"q_proj", "k_proj", "v_proj", "post", "relative_k_proj"}) {
      builder.linear(name, hidden, hidden, false);
    }
  }
  {
    const auto convolution = builder.in("lconv1d", "Gemma4AudioLightConv1d");
    builder.linear("linear_start", hidden, 2 * hidden, false);
    builder.linear("linear_end", hidden, hidden, false);
    write_convolution(builder, "depthwise_conv1d", {hidden, 1, kernel}, false);
    builder.norm("pre_layer_norm", hidden, "Gemma4RMSNorm");
    builder.norm("conv_norm", hidden, "Gemma4RMSNorm");
  }
  for (const char* name : {"norm_pre_attn", "norm_post_attn", "norm_out"}) {
    builder.norm(name, hidden, "Gemma4RMSNorm");
  }
}

void write_audio(ModelBuilder& builder, const ConfigReader& audio, std::int64_t text_hidden) {
  const std::int64_t hidden = audio.size({"hidden_size"}, 1024, SizeKind::width);
  const std::int64_t layers = audio.size({"num_hidden_layers"}, 12, SizeKind::layers);
  const std::int64_t heads = audio.size({"num_attention_heads"}, 8, SizeKind::heads);
  const std::int64_t kernel = audio.size({"conv_kernel_size"}, 5, SizeKind::width);
  const std::int64_t output = audio.size({"output_proj_dims"}, 1536, SizeKind::width);
  auto channels = audio.integers({"subsampling_conv_channels"});
  if (channels.empty()) channels = {128, 32};
  if (channels.size() != 2 || channels[0] < 1 || channels[1] < 1) {
    audio.problem("subsampling_conv_channels", "two positive integers", "another list");
  }
  audio.throw_problems();
  {
    const auto tower = builder.in("audio_tower", "Gemma4AudioModel");
    {
      const auto subsample = builder.in("subsample_conv_projection", "Gemma4AudioSubSample");
      write_convolution(builder, "conv0", {channels[0], 1, 3, 3}, false);
      builder.norm("norm0", channels[0], "LayerNorm");
      write_convolution(builder, "conv1", {channels[1], channels[0], 3, 3}, false);
      builder.norm("norm1", channels[1], "LayerNorm");
      // 128 mel bins, halved twice, times the channels.
      builder.linear("input_proj_linear", channels[1] * 32, hidden, false);
    }
    {
      const auto list = builder.in("layers", "ModuleList");
      for (std::int64_t index = 0; index < layers; ++index) {
        const auto layer = builder.in(index, "Gemma4AudioLayer");
        write_audio_layer(builder, hidden, heads, kernel);
      }
    }
    builder.linear("output_proj", hidden, output, true);
  }
  const auto embed = builder.in("embed_audio", "Gemma4MultimodalEmbedder");
  builder.linear("embedding_projection", output, text_hidden, false);
}

}  // namespace

Model build_gemma4(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  only_head(input, Head::conditional_generation);
  const auto nested = config.child({"text_config"}, "Gemma4TextConfig");
  if (!nested) config.problem("text_config", "the language model's config", "no such key");
  config.throw_problems();
  Gemma4Text text = read_text(*nested);
  text.sizes.tied =
      config.flag({"tie_word_embeddings"}, nested->flag({"tie_word_embeddings"}, true));
  config.throw_problems();

  Model model;
  model.architecture = architecture_or(input, "Gemma4ForConditionalGeneration");
  ModelBuilder builder(model.architecture);
  int embedding = -1;
  {
    const auto scope = builder.in("model", "Gemma4Model");
    {
      const auto language = builder.in("language_model", "Gemma4TextModel");
      embedding = write_text(builder, text);
    }
    if (const auto vision = config.child({"vision_config"}, "Gemma4VisionConfig")) {
      write_vision(builder, *vision, text.sizes.hidden);
    }
    if (const auto audio = config.child({"audio_config"}, "Gemma4AudioConfig")) {
      write_audio(builder, *audio, text.sizes.hidden);
    }
  }
  write_language_head(
      builder, text.sizes.hidden, text.sizes.vocabulary, text.sizes.tied, embedding);
  builder.move_into(model);
  return model;
}

}  // namespace zeroplan::families
