// A small model of a multi-query decoder: h = 1024, f = 4096, 8 heads.
#pragma once

#include <string>
#include <vector>

#include "tests/support/small_models.hpp"

namespace zeroplan::testing {

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
