// MiniMax-M3 (transformers 5.23 modeling_minimax_m3_vl.py, the text model) and Step-3.7
// (modeling_step3p7.py; flat configs are its text model alone). Layers for multi-token prediction
// are left out, as those classes leave them out of training.
#include <algorithm>
#include <sstream>

#include "model/families/counted_vision.hpp"

namespace zeroplan::families {

namespace {

// Per-layer flags from names ("sparse") or from zeros and ones; `fallback` where neither is given.
std::vector<bool> flags_of(const ConfigReader& config,
                           std::string_view names_key,
                           std::string_view name,
                           std::string_view numbers_key,
                           std::vector<bool> fallback) {
  const auto names = config.texts({names_key});
  const auto numbers = config.integers({numbers_key});
  for (std::size_t layer = 0; layer < fallback.size(); ++layer) {
    if (layer < names.size()) {
      fallback[layer] = names[layer] == name;
    } else if (layer < numbers.size()) {
      fallback[layer] = numbers[layer] != 0;
    }
  }
  return fallback;
}

void check_experts(const ConfigReader& config, const MixtureOfExperts& experts) {
  if (experts.experts_per_token <= experts.experts) return;
  config.problem("num_experts_per_tok",
                 phrase("at most the number of experts, {}", experts.experts),
                 std::to_string(experts.experts_per_token));
}

void write_index(ModelBuilder& builder, std::int64_t hidden, std::int64_t heads, std::int64_t dim) {
  const auto scope = builder.in("indexer", "MiniMaxM3VLIndexer");
  builder.linear("q_proj", hidden, heads * dim, false);
  builder.linear("k_proj", hidden, dim, false);
  builder.norm("q_norm", dim, "RMSNorm");
  builder.norm("k_norm", dim, "RMSNorm");
}

}  // namespace

Model build_minimax_m3(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  const TextSizes sizes = read_text_sizes(config);
  GroupedAttention attention = read_attention(config);
  attention.qkv_bias = attention.output_bias = false;
  attention.query_norm = attention.key_norm = attention.head_dim;
  MixtureOfExperts experts;
  experts.hidden = sizes.hidden;
  experts.experts = config.core({"num_local_experts", "num_experts"}, 128, SizeKind::experts);
  experts.experts_per_token = config.core({"num_experts_per_tok"}, 4, SizeKind::experts);
  experts.intermediate = config.core({"intermediate_size"}, 3072, SizeKind::width);
  experts.shared_intermediate = config.size({"shared_intermediate_size"}, 3072, SizeKind::width);
  check_experts(config, experts);
  const std::int64_t dense = config.size({"dense_intermediate_size"}, 12288, SizeKind::width);
  const auto layers = static_cast<std::size_t>(sizes.layers);
  const auto sparse =
      flags_of(config, "mlp_layer_types", "sparse", "moe_layer_freq", std::vector(layers, true));
  std::vector<bool> indexed(layers, false);
  std::int64_t index_heads = 4;
  std::int64_t index_dim = 128;
  if (const auto chosen = config.child({"sparse_attention_config"}, config.family())) {
    indexed = flags_of(*chosen, "layer_types", "sparse", "sparse_attention_freq", indexed);
    index_heads = chosen->size({"sparse_num_index_heads"}, 4, SizeKind::heads);
    index_dim = chosen->size({"sparse_index_dim"}, 128, SizeKind::width);
  }
  indexed = flags_of(config, "layer_types", "minimax_m3_sparse", "", indexed);
  return counted_causal_lm(input, sizes, [&](ModelBuilder& b, std::int64_t index) {
    const auto layer = static_cast<std::size_t>(index);
    write_attention(b, attention);
    if (indexed[layer]) write_index(b, sizes.hidden, index_heads, index_dim);
    {
      const auto mlp = b.in("mlp", "MLP");
      if (sparse[layer]) {
        write_experts(b, experts);
      } else {
        write_gated(b, sizes.hidden, dense);
      }
    }
    b.norm("input_layernorm", sizes.hidden, "RMSNorm");
    b.norm("post_attention_layernorm", sizes.hidden, "RMSNorm");
  });
}

namespace {

struct StepText {
  TextSizes sizes;
  GroupedAttention full;
  GroupedAttention sliding;
  std::vector<bool> slides;  // of each layer
  std::vector<bool> sparse;
  std::int64_t intermediate = 0;
  MixtureOfExperts experts;
};

// moe_layers_enum: "3,4,5" or [3, 4, 5].
std::vector<bool> step_sparse_layers(const ConfigReader& config, std::int64_t layers) {
  std::vector<bool> sparse(static_cast<std::size_t>(layers), false);
  const Json* listed = config.find({"moe_layers_enum"});
  if (listed == nullptr) {
    const std::int64_t first = config.count({"first_k_dense_replace"}, 3, SizeKind::layers);
    for (std::int64_t layer = first; layer < layers; ++layer) {
      sparse[static_cast<std::size_t>(layer)] = true;
    }
    return flags_of(config, "mlp_layer_types", "sparse", "", std::move(sparse));
  }
  std::vector<std::int64_t> indexes;
  if (listed->is_string()) {
    std::istringstream stream(listed->as_string());
    for (std::int64_t index = 0; stream >> index; stream.ignore(1)) indexes.push_back(index);
    if (!stream.eof()) config.problem("moe_layers_enum", "layers, 3,4,5", listed->as_string());
  } else {
    indexes = config.integers({"moe_layers_enum"});
  }
  for (const std::int64_t index : indexes) {
    // Entries past the last layer belong to multi-token prediction.
    if (index >= 0 && index < layers) sparse[static_cast<std::size_t>(index)] = true;
  }
  return flags_of(config, "mlp_layer_types", "sparse", "", std::move(sparse));
}

StepText read_step_text(const ConfigReader& config) {
  StepText text;
  text.sizes.hidden = config.core({"hidden_size"}, 4096, SizeKind::width);
  text.sizes.layers = config.core({"num_hidden_layers"}, 45, SizeKind::layers);
  text.sizes.vocabulary = config.core({"vocab_size"}, 128815, SizeKind::vocabulary);
  text.sizes.tied = config.flag({"tie_word_embeddings"}, false);
  text.full.hidden = text.sizes.hidden;
  text.full.heads = config.core({"num_attention_heads"}, 64, SizeKind::heads);
  text.full.kv_heads =
      config.size({"num_key_value_heads", "num_attention_groups"}, 8, SizeKind::heads);
  text.full.head_dim = config.size({"head_dim"}, 128, SizeKind::width);
  text.full.qkv_bias = text.full.output_bias = config.flag({"attention_bias"}, false);
  text.full.query_norm = text.full.key_norm = text.full.head_dim;
  text.sliding = text.full;
  const auto layers = static_cast<std::size_t>(text.sizes.layers);
  text.slides =
      flags_of(config, "layer_types", "sliding_attention", "", std::vector(layers, false));
  if (const auto other = config.child({"attention_other_setting"}, config.family())) {
    text.sliding.heads = other->derived({"num_attention_heads"}, text.full.heads, SizeKind::heads);
  } else {
    text.sliding.heads =
        config.derived({"num_sliding_attention_heads"}, text.full.heads, SizeKind::heads);
    if (!config.has({"num_sliding_attention_heads"})) {
      config.note(
          "sliding layers have as many heads as full ones, because attention_other_setting is "
          "missing");
    }
  }
  text.sparse = step_sparse_layers(config, text.sizes.layers);
  text.intermediate = config.core({"intermediate_size"}, 11264, SizeKind::width);
  MixtureOfExperts& experts = text.experts;
  experts.hidden = text.sizes.hidden;
  experts.experts =
      config.core({"n_routed_experts", "moe_num_experts", "num_local_experts", "num_experts"},
                  288,
                  SizeKind::experts);
  experts.experts_per_token =
      config.core({"num_experts_per_tok", "moe_top_k"}, 8, SizeKind::experts);
  experts.intermediate = config.core({"moe_intermediate_size"}, 1280, SizeKind::width);
  experts.shared_intermediate =
      config.size({"share_expert_dim", "share_expert_dims"}, 1280, SizeKind::width);
  check_experts(config, experts);
  return text;
}

void write_step_layer(ModelBuilder& builder, const StepText& text, std::int64_t index) {
  const auto layer = static_cast<std::size_t>(index);
  const GroupedAttention& attention = text.slides[layer] ? text.sliding : text.full;
  write_attention(builder, attention);
  builder.linear("g_proj", text.sizes.hidden, attention.heads, false);  // a gate for each head
  {
    const auto mlp = builder.in("mlp", "MLP");
    if (text.sparse[layer]) {
      write_experts(builder, text.experts);
    } else {
      write_gated(builder, text.sizes.hidden, text.intermediate);
    }
  }
  builder.norm("input_layernorm", text.sizes.hidden, "RMSNorm");
  builder.norm("post_attention_layernorm", text.sizes.hidden, "RMSNorm");
}

PatchedVision read_step_vision(const ConfigReader& config) {
  PatchedVision vision;
  vision.blocks.hidden = config.size({"width", "hidden_size"}, 1536, SizeKind::width);
  vision.blocks.layers = config.size({"layers", "num_hidden_layers"}, 47, SizeKind::layers);
  double times = 8960.0 / 1536.0;
  if (const Json* ratio = config.find({"mlp_ratio"})) {
    times = ratio->is_number() ? ratio->as_number() : 0.0;
    if (!(times > 0.0 && times < 1000.0)) {
      config.problem("mlp_ratio", "a number above 0 and below 1000", ratio->dump());
      return vision;
    }
  }
  vision.blocks.intermediate =
      static_cast<std::int64_t>(static_cast<double>(vision.blocks.hidden) * times);
  vision.channels = config.derived({"num_channels"}, 3, SizeKind::width);
  vision.patch = config.size({"patch_size"}, 14, SizeKind::width);
  const std::int64_t image = config.size({"image_size"}, 728, SizeKind::width);
  if (image < vision.patch) {
    config.problem(
        "image_size", phrase("at least one patch, {}", vision.patch), std::to_string(image));
  }
  const std::int64_t across = image / vision.patch;
  vision.positions = across * across;
  return vision;
}

void write_step_vision(ModelBuilder& builder, const PatchedVision& vision) {
  const std::int64_t hidden = vision.blocks.hidden;
  const auto scope = builder.in("vision_model", "Step3p7VisionModel");
  {
    const auto embed = builder.in("embeddings", "Step3p7VisionEmbeddings");
    write_convolution(
        builder, "patch_embedding", {hidden, vision.channels, vision.patch, vision.patch}, false);
    builder.embedding("position_embedding", vision.positions, hidden);
  }
  builder.layer_norm("pre_layernorm", hidden);
  write_vision_blocks(builder, "layers", vision.blocks);
  {
    const auto scales = builder.in("scales", "LayerScales");
    builder.parameter("lambda_1", {vision.blocks.layers, hidden});
    builder.parameter("lambda_2", {vision.blocks.layers, hidden});
  }
  write_convolution(builder, "downsampler1", {2 * hidden, hidden, 3, 3}, true);
  write_convolution(builder, "downsampler2", {4 * hidden, 2 * hidden, 3, 3}, true);
}

}  // namespace

Model build_step3p7(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  const auto nested = config.child({"text_config"}, "Step3p7TextConfig");
  if (!nested) {
    const StepText text = read_step_text(config);
    return counted_causal_lm(input, text.sizes, [&](ModelBuilder& b, std::int64_t index) {
      write_step_layer(b, text, index);
    });
  }
  only_head(input, Head::conditional_generation);
  const auto seen = need_child(config, "vision_config", "Step3p7VisionConfig");
  config.throw_problems();
  const StepText text = read_step_text(*nested);
  const PatchedVision vision = read_step_vision(*seen);
  const bool bias = config.flag({"projector_bias"}, false);
  config.throw_problems();

  Model model;
  model.architecture = architecture_or(input, "Step3p7ForConditionalGeneration");
  ModelBuilder builder(model.architecture);
  int embedding = -1;
  {
    const auto scope = builder.in("model", "Step3p7Model");
    write_step_vision(builder, vision);
    {
      const auto language = builder.in("language_model", "Step3p7TextModel");
      embedding = write_text_trunk(builder, text.sizes, [&](ModelBuilder& b, std::int64_t index) {
        write_step_layer(b, text, index);
      });
    }
    builder.linear("multi_modal_projector", 4 * vision.blocks.hidden, text.sizes.hidden, bias);
  }
  const TextSizes& sizes = text.sizes;
  write_language_head(builder, sizes.hidden, sizes.vocabulary, sizes.tied, embedding);
  builder.move_into(model);
  return model;
}

}  // namespace zeroplan::families
