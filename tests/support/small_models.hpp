// Small models written by hand, with the parameters of a transformers class in torch's order, for
// tests of what happens inside a layer.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "model/transformer.hpp"

namespace zeroplan::testing {

inline void add_parameter(Model& model,
                          const std::string& name,
                          const std::vector<std::int64_t>& shape) {
  Parameter parameter;
  parameter.name = name;
  parameter.shape = shape;
  parameter.numel = 1_elements;
  for (const std::int64_t size : shape) parameter.numel = parameter.numel * size;
  model.parameters.push_back(parameter);
}

struct LlamaSizes {
  std::int64_t hidden = 1024, layers = 2, heads = 8, kv_heads = 8, head_dim = 128,
               intermediate = 4096, vocabulary = 32000;
  double attention_dropout = 0.0;
  bool biases = false, head_norms = false, tied = false;
};

inline Model llama(const LlamaSizes& sizes) {
  Model model;
  model.model_type = "llama";
  model.architecture = "LlamaForCausalLM";
  model.implementation_family = "llama";
  model.planned = true;
  TransformerShape& shape = model.shape;
  shape.hidden = sizes.hidden;
  shape.layers = sizes.layers;
  shape.heads = sizes.heads;
  shape.kv_heads = sizes.kv_heads;
  shape.head_dim = sizes.head_dim;
  shape.intermediate = sizes.intermediate;
  shape.vocabulary = sizes.vocabulary;
  shape.rotary_dim = sizes.head_dim;
  shape.attention_dropout = sizes.attention_dropout;
  shape.tied_embeddings = sizes.tied;
  const std::int64_t h = sizes.hidden, f = sizes.intermediate, q = sizes.heads * sizes.head_dim,
                     kv = sizes.kv_heads * sizes.head_dim;
  add_parameter(model, "model.embed_tokens.weight", {sizes.vocabulary, h});
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    std::string layer = "model.layers.";  // appended to: GCC 12 warns about operator+ here
    layer.append(std::to_string(i)).append(".");
    const auto projection = [&](const std::string& name, std::int64_t out) {
      add_parameter(model, layer + "self_attn." + name + ".weight", {out, h});
      if (sizes.biases) add_parameter(model, layer + "self_attn." + name + ".bias", {out});
    };
    projection("q_proj", q);
    projection("k_proj", kv);
    projection("v_proj", kv);
    add_parameter(model, layer + "self_attn.o_proj.weight", {h, q});
    if (sizes.head_norms) {
      add_parameter(model, layer + "self_attn.q_norm.weight", {sizes.head_dim});
      add_parameter(model, layer + "self_attn.k_norm.weight", {sizes.head_dim});
    }
    add_parameter(model, layer + "mlp.gate_proj.weight", {f, h});
    add_parameter(model, layer + "mlp.up_proj.weight", {f, h});
    add_parameter(model, layer + "mlp.down_proj.weight", {h, f});
    add_parameter(model, layer + "input_layernorm.weight", {h});
    add_parameter(model, layer + "post_attention_layernorm.weight", {h});
  }
  add_parameter(model, "model.norm.weight", {h});
  if (!sizes.tied) add_parameter(model, "lm_head.weight", {sizes.vocabulary, h});
  return model;
}

inline Model gemma() {
  Model model = llama({});
  model.model_type = "gemma";
  model.shape.activation = ActivationFunction::gelu_tanh;
  return model;
}

inline Model phi3() {
  Model model = llama({});
  model.model_type = "phi3";
  std::vector<Parameter> all;
  all.swap(model.parameters);
  for (const Parameter& parameter : all) {  // fused projections in place of their first part
    const std::string& name = parameter.name;
    const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (is("k_proj") || is("v_proj") || is("up_proj")) continue;
    if (is("q_proj")) {
      add_parameter(model, name.substr(0, name.find("q_proj")) + "qkv_proj.weight", {3072, 1024});
    } else if (is("gate_proj")) {
      add_parameter(
          model, name.substr(0, name.find("gate_proj")) + "gate_up_proj.weight", {8192, 1024});
    } else {
      add_parameter(model, name, parameter.shape);
    }
  }
  return model;
}

}  // namespace zeroplan::testing
