#include "model/families/llama_like.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace zeroplan::families {

namespace {

// The dense and the routed feed-forwards are alike but for their width and their classes' names.
struct GatedMlp {
  std::string type;
  std::array<std::string_view, 3> order;  // in registration order; "down" is recognized by name
  std::int64_t hidden;
  std::int64_t width;
  bool bias;
  std::string activation_class;
};

void write_gated_mlp(ModelBuilder& builder, const GatedMlp& mlp) {
  for (const std::string_view name : mlp.order) {
    const bool down = name == "down_proj" || name == "w2";
    builder.linear(name, down ? mlp.width : mlp.hidden, down ? mlp.hidden : mlp.width, mlp.bias);
  }
  builder.leaf("act_fn", mlp.activation_class);
}

constexpr std::array<std::string_view, 3> kGateUpDown = {"gate_proj", "up_proj", "down_proj"};
constexpr std::array<std::string_view, 3> kGateDownUp = {"gate_proj", "down_proj", "up_proj"};
constexpr std::array<std::string_view, 3> kMixtralOrder = {"w1", "w2", "w3"};

std::string norm_class(const LlamaTraits& traits) {
  return traits.classes == "Baichuan" ? "RMSNorm" : std::string(traits.classes) + "RMSNorm";
}

std::string mlp_class(const LlamaTraits& traits) {
  return traits.classes == "Baichuan" ? "MLP" : std::string(traits.classes) + "MLP";
}

// transformers 5: stacked experts, and classes that are named otherwise.
bool is_version_5(const LlamaLike& llama) { return llama.layout == ExpertLayout::fused; }

std::string activation_class(const LlamaLike& llama) {
  const std::string& name = llama.activation.class_name;
  return is_version_5(llama) && name == "SiLU" ? "SiLUActivation" : name;
}

std::string attention_class(const LlamaLike& llama) {
  const LlamaTraits& traits = *llama.traits;
  if (traits.classes == "Baichuan") return "Attention";
  // The class that attn_implementation = sdpa picks, where the choice is by class.
  if (traits.classes == "Qwen2Moe" && !is_version_5(llama)) return "Qwen2MoeSdpaAttention";
  return std::string(traits.classes) + "Attention";
}

void write_attention(ModelBuilder& builder, const LlamaLike& llama) {
  const LlamaTraits& traits = *llama.traits;
  const AttentionSizes& sizes = llama.attention;
  const std::int64_t queries = sizes.heads * sizes.head_dim;
  const std::int64_t keys = sizes.kv_heads * sizes.head_dim;
  const auto scope = builder.in("self_attn", attention_class(llama));
  switch (traits.projections) {
    case Projections::separate:
    case Projections::separate_gate_down_up:
      builder.linear("q_proj", sizes.hidden, queries, llama.qkv_bias);
      builder.linear("k_proj", sizes.hidden, keys, llama.qkv_bias);
      builder.linear("v_proj", sizes.hidden, keys, llama.qkv_bias);
      builder.linear("o_proj", queries, sizes.hidden, llama.output_bias);
      break;
    case Projections::w_pack:
      builder.linear("W_pack", sizes.hidden, queries + 2 * keys, false);
      builder.linear("o_proj", queries, sizes.hidden, false);
      break;
    case Projections::fused:
      builder.linear("o_proj", queries, sizes.hidden, false);
      builder.linear("qkv_proj", sizes.hidden, queries + 2 * keys, false);
      break;
  }
  if (traits.query_key_norm) {
    builder.norm("q_norm", sizes.head_dim, norm_class(traits));
    builder.norm("k_norm", sizes.head_dim, norm_class(traits));
  }
  if (traits.rotary_in_attention && !llama.alibi && !is_version_5(llama)) {
    const std::string prefix = traits.classes == "Baichuan" ? "" : std::string(traits.classes);
    builder.leaf("rotary_emb", prefix + "RotaryEmbedding");
  }
}

void write_dense_mlp(ModelBuilder& builder, const LlamaLike& llama) {
  const LlamaTraits& traits = *llama.traits;
  const std::int64_t hidden = llama.attention.hidden;
  const auto scope = builder.in("mlp", mlp_class(traits));
  if (traits.projections == Projections::fused) {
    builder.linear("gate_up_proj", hidden, 2 * llama.intermediate, false);
    builder.linear("down_proj", llama.intermediate, hidden, false);
    builder.leaf("activation_fn", llama.activation.class_name);
    return;
  }
  const auto& order = traits.projections == Projections::separate ? kGateUpDown : kGateDownUp;
  write_gated_mlp(builder,
                  {mlp_class(traits),
                   order,
                   hidden,
                   llama.intermediate,
                   llama.mlp_bias,
                   llama.activation.class_name});
}

// One after the other, each a module (transformers 4).
void write_expert_modules(ModelBuilder& builder, const LlamaLike& llama, const GatedMlp& expert) {
  const auto list = builder.in("experts", "ModuleList");
  const auto routing = builder.routed(llama.experts_per_token, llama.experts);
  for (std::int64_t index = 0; index < llama.experts; ++index) {
    const auto one = builder.in(index, expert.type);
    write_gated_mlp(builder, expert);
  }
}

// All in two parameters (transformers 5, Qwen3MoeExperts and the classes like it).
void write_fused_experts(ModelBuilder& builder, const LlamaLike& llama) {
  const auto scope = builder.in("experts", std::string(llama.traits->classes) + "Experts");
  const auto routing = builder.routed(llama.experts_per_token, llama.experts);
  const std::int64_t hidden = llama.attention.hidden;
  const std::int64_t width = llama.expert_intermediate;
  builder.parameter("gate_up_proj", {llama.experts, 2 * width, hidden});
  builder.parameter("down_proj", {llama.experts, hidden, width});
  builder.leaf("act_fn", activation_class(llama));
}

void write_experts(ModelBuilder& builder, const LlamaLike& llama) {
  const LlamaTraits& traits = *llama.traits;
  const std::int64_t hidden = llama.attention.hidden;
  const bool mixtral = traits.experts == ExpertStyle::mixtral;
  const bool fused = is_version_5(llama);
  const GatedMlp expert = {mixtral ? "MixtralBlockSparseTop2MLP" : mlp_class(traits),
                           mixtral ? kMixtralOrder : kGateUpDown,
                           hidden,
                           llama.expert_intermediate,
                           false,
                           activation_class(llama)};
  const std::string classes(traits.classes);
  const auto scope =
      builder.in(mixtral && !fused ? "block_sparse_moe" : "mlp", classes + "SparseMoeBlock");
  // Qwen3MoeSparseMoeBlock of transformers 5 makes its experts before its router.
  const bool experts_first = fused && traits.model_type == "qwen3_moe";
  if (experts_first) write_fused_experts(builder, llama);
  builder.linear("gate", hidden, llama.experts, false, fused ? classes + "TopKRouter" : "Linear");
  if (!fused) write_expert_modules(builder, llama, expert);
  if (fused && !experts_first) write_fused_experts(builder, llama);
  if (llama.shared_intermediate > 0) {
    {
      const auto shared = builder.in("shared_expert", mlp_class(traits));
      GatedMlp mlp = expert;
      mlp.width = llama.shared_intermediate;
      write_gated_mlp(builder, mlp);
    }
    builder.linear("shared_expert_gate", hidden, 1, false);
  }
}

void write_layer(ModelBuilder& builder, const LlamaLike& llama, std::size_t layer) {
  const LlamaTraits& traits = *llama.traits;
  const std::string layer_class = traits.classes == "Baichuan"
                                      ? (llama.alibi ? "BaichuanLayer" : "DecoderLayer")
                                      : std::string(traits.classes) + "DecoderLayer";
  const auto scope = builder.in(static_cast<std::int64_t>(layer), layer_class);
  write_attention(builder, llama);
  if (llama.sparse[layer]) {
    write_experts(builder, llama);
  } else {
    write_dense_mlp(builder, llama);
  }
  builder.norm("input_layernorm", llama.attention.hidden, norm_class(traits));
  builder.norm("post_attention_layernorm", llama.attention.hidden, norm_class(traits));
  if (traits.projections == Projections::fused) {
    builder.leaf("resid_attn_dropout", "Dropout");
    builder.leaf("resid_mlp_dropout", "Dropout");
  }
}

AttentionSizes read_attention(const ConfigReader& config, const LlamaTraits& traits) {
  AttentionSizes sizes;
  sizes.hidden = config.core({"hidden_size", "n_embd", "d_model"}, traits.hidden, SizeKind::width);
  sizes.heads = config.core(
      {"num_attention_heads", "n_head", "n_heads", "num_heads"}, traits.heads, SizeKind::heads);
  // A null means one key head per query head in every class; a missing key the class's default.
  const ConfigReader::Keys kv_keys = {
      "num_key_value_heads", "num_kv_heads", "n_kv_heads", "multi_query_group_num"};
  const bool null_key = config.object().find("num_key_value_heads") != nullptr;
  if (config.has(kv_keys) || null_key || traits.kv_heads == 0) {
    sizes.kv_heads = config.derived(kv_keys, sizes.heads, SizeKind::heads);
  } else {
    sizes.kv_heads = config.size(kv_keys, traits.kv_heads, SizeKind::heads);
  }
  if (const auto given = config.optional_size({"head_dim"}, SizeKind::width)) {
    sizes.head_dim = *given;
  } else if (traits.head_dim != 0) {
    sizes.head_dim = config.size({"head_dim"}, traits.head_dim, SizeKind::width);
  } else {
    config.must_divide(sizes.heads,
                       {"num_attention_heads", "n_head", "n_heads", "num_heads"},
                       sizes.hidden,
                       "hidden_size");
    sizes.head_dim = std::max<std::int64_t>(1, sizes.hidden / sizes.heads);
  }
  config.must_divide(sizes.kv_heads, kv_keys, sizes.heads, "num_attention_heads");
  return sizes;
}

void read_biases(const ConfigReader& config, const LlamaTraits& traits, LlamaLike& llama) {
  switch (traits.bias) {
    case AttentionBias::never:
      break;
    case AttentionBias::by_attention_bias:
      llama.qkv_bias = llama.output_bias = config.flag({"attention_bias"}, false);
      break;
    case AttentionBias::query_key_value:
      llama.qkv_bias = true;
      break;
    case AttentionBias::by_qkv_bias:
      llama.qkv_bias = config.flag({"qkv_bias"}, true);
      break;
    case AttentionBias::by_bias:
      llama.qkv_bias = llama.output_bias = config.flag({"bias"}, true, true);
      break;
  }
  if (traits.model_type == "llama") llama.mlp_bias = config.flag({"mlp_bias"}, false);
}

void read_experts(const ConfigReader& config, const LlamaTraits& traits, LlamaLike& llama) {
  llama.sparse.assign(static_cast<std::size_t>(llama.layers), false);
  if (traits.experts == ExpertStyle::none) return;
  const bool mixtral = traits.experts == ExpertStyle::mixtral;
  const bool qwen2 = traits.model_type == "qwen2_moe";
  llama.experts = config.size({mixtral ? "num_local_experts" : "num_experts"},
                              mixtral ? 8 : (qwen2 ? 60 : 128),
                              SizeKind::experts);
  llama.experts_per_token =
      config.size({"num_experts_per_tok"}, mixtral ? 2 : (qwen2 ? 4 : 8), SizeKind::experts);
  check_experts_per_token(config, llama.experts_per_token, llama.experts);
  if (mixtral) {
    llama.expert_intermediate = llama.intermediate;
    llama.sparse.assign(llama.sparse.size(), true);
    return;
  }
  llama.expert_intermediate =
      config.size({"moe_intermediate_size"}, qwen2 ? 1408 : 768, SizeKind::width);
  if (qwen2) {
    llama.shared_intermediate =
        config.size({"shared_expert_intermediate_size"}, 5632, SizeKind::width);
  }
  const std::int64_t step = config.derived({"decoder_sparse_step"}, 1, SizeKind::layers);
  const auto dense = config.integers({"mlp_only_layers"});
  for (std::size_t layer = 0; layer < llama.sparse.size(); ++layer) {
    const auto number = static_cast<std::int64_t>(layer);
    const bool listed = std::find(dense.begin(), dense.end(), number) != dense.end();
    llama.sparse[layer] = !listed && (number + 1) % step == 0;
  }
}

std::int64_t read_window(const ConfigReader& config,
                         const LlamaTraits& traits,
                         const LlamaLike& llama) {
  if (traits.window_needs_flag && !config.flag({"use_sliding_window"}, false)) return 0;
  const Json* key = config.object().find("sliding_window");
  if (key != nullptr && key->is_null()) return 0;
  if (key == nullptr && traits.model_type != "mistral") return 0;
  const std::int64_t window =
      config.derived({"sliding_window"}, traits.sliding_window, SizeKind::positions);
  if (traits.window_needs_flag) {
    const std::int64_t first = config.count({"max_window_layers"}, 28, SizeKind::layers);
    if (first >= llama.layers) return 0;
    if (first > 0) {
      config.note(
          "The sliding window of the layers after max_window_layers is not modelled: all "
          "layers attend to the whole sequence.");
      return 0;
    }
  }
  return window;
}

// Without rotary positions: Baichuan 13B is the same class name with ALiBi, and its config names
// the context model_max_length instead of max_position_embeddings.
bool uses_alibi(const ConfigReader& config, const LlamaTraits& traits) {
  return traits.model_type == "baichuan" && !config.has({"max_position_embeddings"}) &&
         config.has({"model_max_length"});
}

// rope_theta and rope_scaling; transformers 5 has both in rope_parameters.
void read_rotary(const ConfigReader& config, TransformerShape& shape) {
  const Json* theta = config.find({"rope_theta"});
  const Json* scaling = config.find({"rope_parameters", "rope_scaling"});
  if (scaling != nullptr && scaling->is_object()) {
    if (const Json* inner = scaling->find("rope_theta")) theta = inner;
    const Json* type = scaling->find("rope_type");
    if (type == nullptr) type = scaling->find("type");
    shape.rotary_scaled = type != nullptr && !(type->is_string() && type->as_string() == "default");
  }
  if (theta != nullptr && theta->is_number() && theta->as_number() > 0.0) {
    shape.rotary_base = theta->as_number();
  }
}

void fill_shape(const ConfigReader& config, const LlamaLike& llama, Model& model) {
  const LlamaTraits& traits = *llama.traits;
  TransformerShape& shape = model.shape;
  set_sizes(shape, llama.attention, llama.layers, llama.intermediate, llama.vocabulary);
  shape.max_positions = config.derived(
      {"max_position_embeddings", "model_max_length"}, traits.positions, SizeKind::positions);
  shape.position = llama.alibi ? PositionKind::alibi : PositionKind::rotary;
  shape.tied_embeddings = llama.tied;
  const double rotated = config.fraction({"partial_rotary_factor"}, 1.0);
  shape.rotary_dim =
      llama.alibi ? 0
                  : rotated_elements(config, llama.attention, {"partial_rotary_factor"}, rotated);
  read_rotary(config, shape);
  shape.norm_epsilon = config.fraction({"rms_norm_eps"}, 1e-6);
  shape.sliding_window = read_window(config, traits, llama);
  shape.attention_dropout = config.fraction({"attention_dropout"}, 0.0);
  if (traits.projections == Projections::fused) {
    shape.hidden_dropout = config.fraction({"resid_pdrop"}, 0.0);
  }
  if (llama.experts > 0) {
    shape.experts = {.experts = llama.experts,
                     .experts_per_token = llama.experts_per_token,
                     .intermediate = llama.expert_intermediate,
                     .shared_intermediate = llama.shared_intermediate,
                     .fused = llama.layout == ExpertLayout::fused};
    const auto first = std::find(llama.sparse.begin(), llama.sparse.end(), true);
    shape.dense_layers = first - llama.sparse.begin();
  }
}

// Experts after the dense layers, as TransformerShape describes them.
bool dense_layers_come_first(const LlamaLike& llama) {
  return llama.experts == 0 || std::is_sorted(llama.sparse.begin(), llama.sparse.end());
}

void write_language_head(ModelBuilder& builder, const LlamaLike& llama, int embedding) {
  if (llama.tied) {
    builder.tied_linear("lm_head", embedding);
    return;
  }
  // Baichuan2 normalizes the rows of the output matrix; Baichuan 1 (64000 tokens) does not.
  const bool normalized = llama.traits->classes == "Baichuan" && llama.vocabulary == 125696;
  builder.linear("lm_head",
                 llama.attention.hidden,
                 llama.vocabulary,
                 false,
                 normalized ? "NormHead" : "Linear");
}

void write_model(ModelBuilder& builder,
                 const ConfigReader& config,
                 const LlamaLike& llama,
                 Head head) {
  if (head == Head::base) {
    write_llama_trunk(builder, llama);
    return;
  }
  const LlamaTraits& traits = *llama.traits;
  const bool questions = head == Head::question_answering;
  // Where the trunk is called model, the class registers qa_outputs before it.
  const bool head_first = questions && traits.question_prefix == "model";
  if (head_first) generic_head(builder, config, head, llama.attention.hidden);
  int embedding = -1;
  {
    const auto trunk = builder.in(questions ? traits.question_prefix : "model",
                                  std::string(traits.classes) + "Model");
    embedding = write_llama_trunk(builder, llama);
  }
  if (head == Head::causal_lm) {
    write_language_head(builder, llama, embedding);
  } else if (!head_first) {
    generic_head(builder, config, head, llama.attention.hidden);
  }
}

}  // namespace

LlamaLike read_llama_like(const ConfigReader& config, const LlamaTraits& traits) {
  LlamaLike llama;
  llama.traits = &traits;
  llama.attention = read_attention(config, traits);
  llama.layers = config.core(
      {"num_hidden_layers", "n_layer", "num_layers", "n_layers"}, traits.layers, SizeKind::layers);
  llama.intermediate = config.core(
      {"intermediate_size", "ffn_hidden_size", "n_inner"}, traits.intermediate, SizeKind::width);
  llama.vocabulary =
      config.core({"vocab_size", "padded_vocab_size"}, traits.vocabulary, SizeKind::vocabulary);
  llama.tied = config.flag({"tie_word_embeddings"}, traits.tied);
  llama.alibi = uses_alibi(config, traits);
  llama.activation =
      activation_of(config.text({"hidden_act", "hidden_activation"}, traits.activation));
  read_biases(config, traits, llama);
  read_experts(config, traits, llama);
  return llama;
}

int write_llama_trunk(ModelBuilder& builder, const LlamaLike& llama) {
  const LlamaTraits& traits = *llama.traits;
  const int embedding = builder.embedding("embed_tokens", llama.vocabulary, llama.attention.hidden);
  {
    const auto list = builder.in("layers", "ModuleList");
    for (std::size_t layer = 0; layer < llama.sparse.size(); ++layer) {
      write_layer(builder, llama, layer);
    }
  }
  builder.norm("norm", llama.attention.hidden, norm_class(traits));
  if (traits.rotary_in_model) {
    builder.leaf("rotary_emb", std::string(traits.classes) + "RotaryEmbedding");
  }
  return embedding;
}

Model build_llama_like(const FamilyInput& input) {
  const LlamaTraits& traits = *llama_traits(input.model_type);
  const ConfigReader& config = input.config;
  const Head head = head_of(input, kDecoderHeads, Head::causal_lm);
  LlamaLike llama = read_llama_like(config, traits);
  llama.layout = input.experts;
  Model model;
  fill_shape(config, llama, model);
  config.throw_problems();

  const std::string prefix(traits.classes);
  model.architecture = prefix + std::string(suffix(head));
  ModelBuilder builder(model.architecture);
  write_model(builder, config, llama, head);
  config.throw_problems();
  builder.move_into(model);
  model.shape.has_logits = head == Head::causal_lm;
  planned_as(model, "llama", llama.activation);
  if (!dense_layers_come_first(llama)) {
    not_planned(model, "dense layers between layers of experts are not modelled");
  }
  return model;
}

}  // namespace zeroplan::families
