// Decoders built like LLaMA: RMS norm, rotary positions, a gated feed-forward, perhaps experts.
// The differences between the model types are a table of traits; multimodal models use the trunk.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/families/family.hpp"

namespace zeroplan::families {

// Which projections of the attention have a bias.
enum class AttentionBias {
  never,
  by_attention_bias,  // q, k, v, o where attention_bias is true (llama)
  query_key_value,    // q, k, v always (qwen2)
  by_qkv_bias,        // q, k, v unless qkv_bias is false (qwen2_moe)
  by_bias,            // q, k, v, o unless bias is false (internlm, internlm2)
  by_use_bias,        // q, k, v, o and the feed-forward unless use_bias is false (starcoder2)
  not_output          // q, k, v unless attention_bias is false, o never (glm4)
};

// How the projections are laid out.
enum class Projections {
  separate,               // q_proj, k_proj, v_proj, o_proj; gate_proj, up_proj, down_proj
  separate_gate_down_up,  // the same, registered gate_proj, down_proj, up_proj (internlm)
  w_pack,                 // W_pack (q, k, v), o_proj; gate_proj, down_proj, up_proj (baichuan)
  fused,                  // o_proj, qkv_proj; gate_up_proj, down_proj (phi3)
  separate_gate_up,       // q_proj, k_proj, v_proj, o_proj; gate_up_proj, down_proj (glm4)
  separate_two,           // q_proj, k_proj, v_proj, o_proj; c_fc, c_proj (starcoder2)
  wqkv                    // wqkv, wo; w1, w3, w2 (internlm2)
};

// Which code a norm runs: RMSNorm as LLaMA, Gemma or OLMo 2 write it, nn.LayerNorm, a LayerNorm in
// Python without a bias (cohere), and one without any parameter (olmo).
enum class NormCode { llama, gemma, olmo2, layer_norm, cohere, plain };

// Names of a layer's norms by where they stand; empty: none stands there.
struct LayerNorms {
  std::string_view before_attention = "input_layernorm";
  std::string_view after_attention = "";
  std::string_view before_mlp = "post_attention_layernorm";
  std::string_view after_mlp = "";
  bool after_registered_last = false;  // behind the two others (glm4)
};

// Names of a layer's branches, and of the two ends of the model.
struct LayerNames {
  std::string_view attention = "self_attn";
  std::string_view mlp = "mlp";
  std::string_view embedding = "embed_tokens";
  std::string_view head = "lm_head";
};

// What q_norm and k_norm normalize.
enum class HeadNorms {
  none,
  each_head,      // of head_dim (qwen3)
  all_heads,      // the projection as a whole (olmo2)
  by_use_qk_norm  // each head with weights of its own, where use_qk_norm is true (cohere)
};

// How layers take turns between a sliding window and the whole sequence.
enum class LayerTurns {
  none,
  by_pattern,  // every sliding_window_pattern-th layer sees all (gemma2, gemma3, cohere2)
  by_no_rope,  // every no_rope_layer_interval-th layer turns no positions (smollm3)
  all_slide    // where the config has a window (starcoder2)
};

enum class ExpertStyle { none, mixtral, qwen };

// Defaults of the configuration class (transformers 4.51, configuration_*.py) and structure.
struct LlamaTraits {
  std::string_view model_type;
  std::string_view classes;  // prefix of the class names, "Llama"
  std::int64_t vocabulary = 32000;
  std::int64_t hidden = 4096;
  std::int64_t intermediate = 11008;
  std::int64_t layers = 32;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden / heads
  std::int64_t positions = 2048;
  bool tied = false;
  std::string_view activation = "silu";
  AttentionBias bias = AttentionBias::never;
  Projections projections = Projections::separate;
  HeadNorms head_norms = HeadNorms::none;
  bool rotary_in_attention = false;  // each attention has its rotary_emb
  bool rotary_in_model = true;       // model.rotary_emb
  std::int64_t sliding_window = 0;   // default of the class, 0: none
  bool window_needs_flag = false;    // sliding_window counts only with use_sliding_window
  std::string_view question_prefix = "transformer";  // attribute of ...ForQuestionAnswering
  ExpertStyle experts = ExpertStyle::none;
  NormCode norm = NormCode::llama;
  LayerNorms norms = {};
  LayerNames names = {};
  LayerTurns turns = LayerTurns::none;
  std::int64_t pattern = 0;                   // of layers that take turns, default of the class
  double rotated_share = 1.0;                 // default of partial_rotary_factor
  std::string_view embedding = "Embedding";   // class of embed_tokens
  std::string_view trunk = "Model";           // ending of the trunk's class
  std::string_view implementation = "llama";  // Model::implementation_family
};

// The implementation family of decoders that clamp queries, keys and values (OLMo's clip_qkv).
inline constexpr std::string_view kClippedDecoder = "clipped_decoder";

const LlamaTraits* llama_traits(std::string_view model_type);

// What a config says, for one trunk.
struct LlamaLike {
  const LlamaTraits* traits = nullptr;
  std::int64_t vocabulary = 0;
  std::int64_t layers = 0;
  std::int64_t intermediate = 0;
  AttentionSizes attention;
  HeadNorms head_norms = HeadNorms::none;
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool tied = false;
  bool alibi = false;  // baichuan 13B
  Activation activation;
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t expert_intermediate = 0;
  std::int64_t shared_intermediate = 0;
  std::vector<bool> sparse;  // of each layer: has experts
  ExpertLayout layout = ExpertLayout::modules;
};

// Reads everything that decides tensors; problems are left in the reader's findings.
LlamaLike read_llama_like(const ConfigReader& config, const LlamaTraits& traits);

// What each layer's attention sees, for classes whose layers take turns; with the window, the
// softcaps and the multipliers of the class into `shape`.
void read_layer_attention(const ConfigReader& config,
                          const LlamaTraits& traits,
                          TransformerShape& shape);

// Writes embed_tokens, layers and norm into the current module; returns the embedding's weight.
int write_llama_trunk(ModelBuilder& builder, const LlamaLike& llama);

}  // namespace zeroplan::families
