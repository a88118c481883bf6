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
constexpr std::array<std::string_view, 3> kInternLm2Order = {"w1", "w3", "w2"};
constexpr std::array<std::string_view, 3> kMixtralOrder = {"w1", "w2", "w3"};

std::string norm_class(const LlamaTraits& traits) {
  if (traits.norm == NormCode::cohere || traits.norm == NormCode::plain) {
    return std::string(traits.classes) + "LayerNorm";
  }
  return traits.classes == "Baichuan" ? "RMSNorm" : std::string(traits.classes) + "RMSNorm";
}

std::string mlp_class(const LlamaTraits& traits) {
  return traits.classes == "Baichuan" ? "MLP" : std::string(traits.classes) + "MLP";
}

void write_norm(ModelBuilder& builder, const LlamaLike& llama, std::string_view name) {
  const std::int64_t hidden = llama.attention.hidden;
  if (llama.traits->norm == NormCode::layer_norm) {
    builder.layer_norm(name, hidden);
  } else if (llama.traits->norm == NormCode::plain) {
    builder.leaf(name, norm_class(*llama.traits));
  } else {
    builder.norm(name, hidden, norm_class(*llama.traits));
  }
}

void write_layer_norms(ModelBuilder& builder, const LlamaLike& llama) {
  const LayerNorms& norms = llama.traits->norms;
  const bool last = norms.after_registered_last;
  for (const std::string_view name : {norms.before_attention,
                                      last ? norms.before_mlp : norms.after_attention,
                                      last ? norms.after_attention : norms.before_mlp,
                                      norms.after_mlp}) {
    if (!name.empty()) write_norm(builder, llama, name);
  }
}

void write_head_norm(ModelBuilder& builder,
                     const LlamaLike& llama,
                     std::string_view name,
                     std::int64_t heads) {
  const std::string type = norm_class(*llama.traits);
  const std::int64_t dim = llama.attention.head_dim;
  switch (llama.head_norms) {
    case HeadNorms::none:
      break;
    case HeadNorms::each_head:
      builder.norm(name, dim, type);
      break;
    case HeadNorms::all_heads:
      builder.norm(name, heads * dim, type);
      break;
    case HeadNorms::by_use_qk_norm: {
      const auto scope = builder.in(name, type);
      builder.parameter("weight", {heads, dim});
      break;
    }
  }
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
  const auto scope = builder.in(traits.names.attention, attention_class(llama));
  switch (traits.projections) {
    case Projections::separate:
    case Projections::separate_gate_down_up:
    case Projections::separate_gate_up:
    case Projections::separate_two:
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
    case Projections::wqkv:
      builder.linear("wqkv", sizes.hidden, queries + 2 * keys, llama.qkv_bias);
      builder.linear("wo", queries, sizes.hidden, llama.output_bias);
      break;
  }
  write_head_norm(builder, llama, "q_norm", sizes.heads);
  write_head_norm(builder, llama, "k_norm", sizes.kv_heads);
  if (traits.rotary_in_attention && !llama.alibi && !is_version_5(llama)) {
    const std::string prefix = traits.classes == "Baichuan" ? "" : std::string(traits.classes);
    builder.leaf("rotary_emb", prefix + "RotaryEmbedding");
  }
}

void write_dense_mlp(ModelBuilder& builder, const LlamaLike& llama) {
  const LlamaTraits& traits = *llama.traits;
  const std::int64_t hidden = llama.attention.hidden;
  const auto scope = builder.in(traits.names.mlp, mlp_class(traits));
  if (traits.projections == Projections::separate_two) {
    builder.linear("c_fc", hidden, llama.intermediate, llama.mlp_bias);
    builder.linear("c_proj", llama.intermediate, hidden, llama.mlp_bias);
    builder.leaf("act", llama.activation.class_name);
    return;
  }
  if (traits.projections == Projections::fused ||
      traits.projections == Projections::separate_gate_up) {
    builder.linear("gate_up_proj", hidden, 2 * llama.intermediate, false);
    builder.linear("down_proj", llama.intermediate, hidden, false);
    builder.leaf("activation_fn", llama.activation.class_name);
    return;
  }
  const auto& order = traits.projections == Projections::separate ? kGateUpDown
                      : traits.projections == Projections::wqkv   ? kInternLm2Order
                                                                  : kGateDownUp;
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
  write_layer_norms(builder, llama);
  if (traits.projections == Projections::fused) {
    builder.leaf("resid_attn_dropout", "Dropout");
    builder.leaf("resid_mlp_dropout", "Dropout");
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
  const double rotated = config.fraction({"partial_rotary_factor"}, traits.rotated_share);
  shape.rotary_dim =
      llama.alibi ? 0
                  : rotated_elements(config, llama.attention, {"partial_rotary_factor"}, rotated);
  read_rotary(config, shape);
  shape.norm_epsilon = config.fraction({"rms_norm_eps"}, 1e-6);
  shape.attention_dropout = config.fraction({"attention_dropout"}, 0.0);
  if (traits.implementation == "llama") {
    shape.sliding_window = read_window(config, traits, llama);
  } else {
    read_layer_attention(config, traits, shape);
  }
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
    builder.tied_linear(llama.traits->names.head, embedding);
    return;
  }
  // Baichuan2 normalizes the rows of the output matrix; Baichuan 1 (64000 tokens) does not.
  const bool normalized = llama.traits->classes == "Baichuan" && llama.vocabulary == 125696;
  builder.linear(llama.traits->names.head,
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
                                  std::string(traits.classes) + std::string(traits.trunk));
    embedding = write_llama_trunk(builder, llama);
  }
  if (head == Head::causal_lm) {
    write_language_head(builder, llama, embedding);
  } else if (!head_first) {
    generic_head(builder, config, head, llama.attention.hidden);
  }
}

}  // namespace

int write_llama_trunk(ModelBuilder& builder, const LlamaLike& llama) {
  const LlamaTraits& traits = *llama.traits;
  const int embedding = builder.embedding(
      traits.names.embedding, llama.vocabulary, llama.attention.hidden, traits.embedding);
  {
    const auto list = builder.in("layers", "ModuleList");
    for (std::size_t layer = 0; layer < llama.sparse.size(); ++layer) {
      write_layer(builder, llama, layer);
    }
  }
  write_norm(builder, llama, "norm");
  if (traits.rotary_in_model) {
    builder.leaf("rotary_emb", std::string(traits.classes) + "RotaryEmbedding");
    // Of sliding layers, until transformers 5.
    if (traits.model_type == "gemma3_text") {
      builder.leaf("rotary_emb_local", "Gemma3RotaryEmbedding");
    }
  }
  return embedding;
}

Model build_llama_like(const FamilyInput& input) {
  const LlamaTraits& traits = *llama_traits(input.model_type);
  const ConfigReader& config = input.config;
  const Head head = head_of(input, kDecoderHeads, Head::causal_lm);
  if (traits.model_type == "olmo" && config.has({"d_model"})) {
    config.problem("d_model",
                   "a config of transformers' own class, as the checkpoints named -hf have it",
                   "one of the first repositories, whose code is their own");
  }
  LlamaLike llama = read_llama_like(config, traits);
  llama.layout = input.experts;
  Model model;
  fill_shape(config, llama, model);
  config.throw_problems();

  const std::string prefix(traits.classes);
  model.architecture = prefix + std::string(head == Head::base ? traits.trunk : suffix(head));
  ModelBuilder builder(model.architecture);
  write_model(builder, config, llama, head);
  config.throw_problems();
  builder.move_into(model);
  model.shape.has_logits = head == Head::causal_lm;
  // OLMo: queries, keys and values are clamped where the config says at what.
  const Json* clip = traits.model_type == "olmo" ? config.find({"clip_qkv"}) : nullptr;
  const bool clips = clip != nullptr && clip->is_number();
  planned_as(model, clips ? kClippedDecoder : traits.implementation, llama.activation);
  if (!dense_layers_come_first(llama)) {
    not_planned(model, "dense layers between layers of experts are not modelled");
  }
  return model;
}

}  // namespace zeroplan::families
