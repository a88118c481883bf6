// Falcon, GPT-NeoX and Phi as litgpt builds them: Hugging Face's classes are recorded. Defaults:
// transformers 4.51.3 configuration_falcon.py, configuration_gpt_neox.py, configuration_phi.py.
#include "model/families/family.hpp"
#include "model/families/litgpt.hpp"

namespace zeroplan::families {

namespace {

struct LitgptFamily {
  TransformerShape shape;
  LitgptLayout layout;
  Activation activation;
};

LitgptFamily read_falcon(const ConfigReader& config) {
  AttentionSizes sizes =
      read_plain_attention(config, {"hidden_size"}, 4544, {"num_attention_heads"}, 71);
  const bool new_decoder = config.flag({"new_decoder_architecture"}, false, true);
  const bool multi_query = config.flag({"multi_query"}, true, !new_decoder);
  if (new_decoder) {
    sizes.kv_heads = config.derived({"num_kv_heads"}, sizes.heads, SizeKind::heads);
    config.must_divide(sizes.kv_heads, {"num_kv_heads"}, sizes.heads, "num_attention_heads");
  } else if (multi_query) {
    sizes.kv_heads = 1;
  }
  LitgptFamily falcon;
  set_sizes(falcon.shape,
            sizes,
            config.core({"num_hidden_layers"}, 32, SizeKind::layers),
            config.derived({"ffn_hidden_size"}, 4 * sizes.hidden, SizeKind::width),
            config.core({"vocab_size"}, 65024, SizeKind::vocabulary));
  const bool alibi = config.flag({"alibi"}, false);
  falcon.shape.position = alibi ? PositionKind::alibi : PositionKind::rotary;
  falcon.shape.rotary_dim = alibi ? 0 : rotated_elements(config, sizes, {}, 1.0);
  const bool parallel = config.flag({"parallel_attn"}, true);
  const std::int64_t norms =
      config.derived({"num_ln_in_parallel_attn"}, new_decoder ? 2 : 1, SizeKind::layers);
  falcon.shape.parallel_residual = parallel || new_decoder;
  falcon.layout.shared_norm = parallel && norms != 2;
  const bool bias = config.flag({"bias"}, false);
  falcon.layout.qkv_bias = falcon.layout.projection_bias = falcon.layout.mlp_bias = bias;
  falcon.activation = activation_of(config.text({"activation"}, "gelu"));
  return falcon;
}

struct UsualSizes {
  std::int64_t layers, intermediate, vocabulary;
  double rotary_share;
};

void read_sizes(const ConfigReader& config,
                const AttentionSizes& attention,
                const UsualSizes& usual,
                const ConfigReader::Keys& share_keys,
                TransformerShape& shape) {
  set_sizes(shape,
            attention,
            config.core({"num_hidden_layers"}, usual.layers, SizeKind::layers),
            config.core({"intermediate_size"}, usual.intermediate, SizeKind::width),
            config.core({"vocab_size"}, usual.vocabulary, SizeKind::vocabulary));
  shape.rotary_dim = rotated_elements(
      config, attention, share_keys, config.fraction(share_keys, usual.rotary_share));
}

LitgptFamily read_gpt_neox(const ConfigReader& config) {
  const AttentionSizes sizes =
      read_plain_attention(config, {"hidden_size"}, 6144, {"num_attention_heads"}, 64);
  LitgptFamily neox;
  read_sizes(
      config, sizes, {44, 24576, 50432, 0.25}, {"rotary_pct", "partial_rotary_factor"}, neox.shape);
  neox.shape.parallel_residual = config.flag({"use_parallel_residual"}, true);
  neox.layout.qkv_bias = neox.layout.projection_bias = config.flag({"attention_bias"}, true);
  neox.layout.mlp_bias = true;
  neox.activation = activation_of(config.text({"hidden_act"}, "gelu"));
  return neox;
}

LitgptFamily read_phi(const ConfigReader& config) {
  AttentionSizes sizes =
      read_plain_attention(config, {"hidden_size"}, 2048, {"num_attention_heads"}, 32);
  sizes.kv_heads = config.derived({"num_key_value_heads"}, sizes.heads, SizeKind::heads);
  config.must_divide(sizes.kv_heads, {"num_key_value_heads"}, sizes.heads, "num_attention_heads");
  LitgptFamily phi;
  read_sizes(config, sizes, {24, 8192, 51200, 0.5}, {"partial_rotary_factor"}, phi.shape);
  phi.shape.parallel_residual = true;
  phi.layout = {.qkv_bias = true,
                .projection_bias = true,
                .mlp_bias = true,
                .head_bias = true,
                .shared_norm = true};
  phi.activation = activation_of(config.text({"hidden_act"}, "gelu_new"));
  if (config.flag({"qk_layernorm"}, false)) {
    config.problem("qk_layernorm", "false under litgpt", "true");
  }
  return phi;
}

LitgptFamily litgpt_family(const FamilyInput& input) {
  if (input.model_type == "falcon") return read_falcon(input.config);
  return input.model_type == "phi" ? read_phi(input.config) : read_gpt_neox(input.config);
}

}  // namespace

Model build_litgpt(const FamilyInput& input) {
  head_of(input, std::array{Head::causal_lm}, Head::causal_lm);
  const LitgptFamily family = litgpt_family(input);
  input.config.throw_problems();
  Model model;
  model.shape = family.shape;
  model.shape.max_positions =
      input.config.derived({"max_position_embeddings"}, 2048, SizeKind::positions);
  model.shape.norm = NormKind::layer_norm;
  model.shape.gated_mlp = false;
  write_litgpt(model, family.layout, {});
  planned_as(model, "litgpt", family.activation);
  return model;
}

}  // namespace zeroplan::families
