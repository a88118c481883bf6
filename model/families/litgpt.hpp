// A model as Lightning's litgpt builds it from the checkpoint of a Hugging Face model: queries,
// keys and values in one linear layer, names of its own, a head that is never tied.
//
// Sources (Lightning-AI/litgpt): model.py GPT, Block, CausalSelfAttention, GptNeoxMLP, LLaMAMLP;
// lora.py LoRALinear, LoRAQKVLinear, mark_only_lora_as_trainable (October 2023 and after).
#pragma once

#include <cstdint>

#include "model/transformer.hpp"

namespace zeroplan {

// Which layers get adapters: the recipe's to_query, to_key, ... switches.
struct LitgptAdapters {
  std::int64_t rank = 0;  // 0: none; everything is trained
  bool query = false, key = false, value = false;
  bool projection = false;
  bool mlp = false;
  bool head = false;
};

// Biases and norms of a family's layers.
struct LitgptLayout {
  bool qkv_bias = false, projection_bias = false, mlp_bias = false, head_bias = false;
  bool shared_norm = false;  // attention and feed-forward read one norm's output
};

// Whether litgpt has the family: llama, mistral, gpt_neox, falcon and phi without experts and
// without norms of heads.
bool litgpt_has(const Model& model);

// The model in litgpt's modules and names, with adapters and everything else frozen where a rank is
// given. As many parameters as the model has, plus the head's where the model ties it, plus
// adapters: litgpt's A of the attention has rank rows a part, its B the parts' widths.
// Precondition: litgpt_has(model).
Model litgpt_model(const Model& model, const LitgptAdapters& adapters);

// The modules of a model whose shape is filled.
void write_litgpt(Model& model, const LitgptLayout& layout, const LitgptAdapters& adapters);

}  // namespace zeroplan
