// Small models of the parallel, multi-query and ALiBi decoders: h = 1024, f = 4096, 8 heads.
#pragma once

#include <string>
#include <vector>

#include "tests/support/small_models.hpp"

namespace zeroplan::testing {

// 7B: one key head, one norm. 40B: two key heads, two norms. RW: ALiBi, biases, sequential.
enum class FalconKind { one_key_head, grouped, alibi };

inline Model falcon(FalconKind kind) {
  const std::int64_t keys = kind == FalconKind::one_key_head ? 1
                            : kind == FalconKind::grouped    ? 2
                                                             : 8;
  const bool biases = kind == FalconKind::alibi;
  std::vector<LayerParameter> layer;
  const auto linear = [&](const char* weight, const char* bias, std::int64_t out, std::int64_t in) {
    layer.push_back({weight, {out, in}});
    if (biases) layer.push_back({bias, {out}});
  };
  linear("self_attention.query_key_value.weight",
         "self_attention.query_key_value.bias",
         (8 + 2 * keys) * 128,
         1024);
  linear("self_attention.dense.weight", "self_attention.dense.bias", 1024, 1024);
  linear("mlp.dense_h_to_4h.weight", "mlp.dense_h_to_4h.bias", 4096, 1024);
  linear("mlp.dense_4h_to_h.weight", "mlp.dense_4h_to_h.bias", 1024, 4096);
  const auto norm = [&](const char* weight, const char* bias) {
    layer.push_back({weight, {1024}});
    layer.push_back({bias, {1024}});
  };
  if (kind == FalconKind::grouped) {
    norm("ln_attn.weight", "ln_attn.bias");
    norm("ln_mlp.weight", "ln_mlp.bias");
  } else {
    if (kind == FalconKind::alibi) {
      norm("post_attention_layernorm.weight", "post_attention_layernorm.bias");
    }
    norm("input_layernorm.weight", "input_layernorm.bias");
  }
  Model model = classic("falcon",
                        "FalconForCausalLM",
                        {{"transformer.word_embeddings.weight", {32000, 1024}}},
                        "transformer.h.",
                        layer,
                        {{"transformer.ln_f.weight", {1024}}, {"transformer.ln_f.bias", {1024}}});
  model.shape.activation = ActivationFunction::gelu;
  model.shape.kv_heads = keys;
  model.shape.parallel_residual = kind != FalconKind::alibi;
  if (kind == FalconKind::alibi) {
    model.shape.position = PositionKind::alibi;
    model.shape.rotary_dim = 0;
  }
  return model;
}

inline Model gpt_bigcode(bool one_key_head) {
  const std::int64_t fused = one_key_head ? 1024 + 2 * 128 : 3 * 1024;
  Model model =
      classic("gpt2",
              "GPTBigCodeForCausalLM",
              {{"transformer.wte.weight", {32000, 1024}}, {"transformer.wpe.weight", {1024, 1024}}},
              "transformer.h.",
              {{"ln_1.weight", {1024}},
               {"ln_1.bias", {1024}},
               {"attn.c_attn.weight", {fused, 1024}},
               {"attn.c_attn.bias", {fused}},
               {"attn.c_proj.weight", {1024, 1024}},
               {"attn.c_proj.bias", {1024}},
               {"ln_2.weight", {1024}},
               {"ln_2.bias", {1024}},
               {"mlp.c_fc.weight", {4096, 1024}},
               {"mlp.c_fc.bias", {4096}},
               {"mlp.c_proj.weight", {1024, 4096}},
               {"mlp.c_proj.bias", {1024}}},
              {{"transformer.ln_f.weight", {1024}}, {"transformer.ln_f.bias", {1024}}});
  model.model_type = "gpt_bigcode";
  model.shape.kv_heads = one_key_head ? 1 : 8;
  model.shape.position = PositionKind::learned;
  model.shape.activation = ActivationFunction::gelu_tanh;
  model.shape.attention_dropout = model.shape.hidden_dropout = model.shape.embedding_dropout = 0.1;
  return model;
}

}  // namespace zeroplan::testing
