// The model of the recordings: a llama-like decoder as modules, parameters and calls, in the order
// of PyTorch's named_modules() and named_parameters().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/engine/fetch_schedule.hpp"
#include "tests/engine/module_calls.hpp"

namespace zeroplan {

struct LlamaShape {
  std::int64_t hidden = 64, intermediate = 176, layers = 4, vocabulary = 256;
  std::int64_t heads = 4, kv_heads = 4;
  bool biases = false;  // of q, k and v
  bool tied = false;
  bool keyword_attention = false;  // self_attn gets its input by keyword, as in Hugging Face's code
  bool parallel_residual = false;  // attention and feed-forward read the same input
  bool dropout = false;            // after the feed-forward, a module of its own
};

struct LlamaLike {
  FetchModel model;
  std::vector<ModuleCall> calls;
  std::vector<ModuleIndex> layers;
  std::vector<std::string> parameter_names;
};

inline LlamaLike make_llama_like(const LlamaShape& s) {
  LlamaLike result;
  FetchModel& model = result.model;
  const auto parameter = [&](const std::string& name, std::int64_t numel) {
    model.parameters.push_back({.numel = Elements::of(numel)});
    result.parameter_names.push_back(name);
    return static_cast<ParameterIndex>(model.parameters.size()) - 1;
  };
  const auto module = [&](ModuleIndex parent, std::vector<ParameterIndex> parameters = {}) {
    model.modules.push_back({std::move(parameters), parent, false});
    return static_cast<ModuleIndex>(model.modules.size()) - 1;
  };
  const auto linear = [&](ModuleIndex parent,
                          const std::string& name,
                          std::int64_t in,
                          std::int64_t out,
                          bool bias) {
    std::vector<ParameterIndex> own{parameter(name + ".weight", in * out)};
    if (bias) own.push_back(parameter(name + ".bias", out));
    return module(parent, std::move(own));
  };
  std::vector<ModuleCall>& calls = result.calls;
  const auto call = [&](ModuleIndex callee, std::int32_t caller, std::vector<std::int32_t> inputs) {
    calls.push_back({.module = callee, .caller = caller, .inputs = std::move(inputs)});
    return static_cast<std::int32_t>(calls.size()) - 1;
  };
  // A call whose module ends with a call or an addition.
  const auto container = [&](std::int32_t index, std::vector<std::int32_t> results) {
    calls[static_cast<std::size_t>(index)].results = std::move(results);
    calls[static_cast<std::size_t>(index)].keeps_tensors = false;
  };

  const ModuleIndex root = module(-1);
  const ModuleIndex embedding =
      module(root, {parameter("embed_tokens.weight", s.vocabulary * s.hidden)});
  const ModuleIndex list = module(root);
  const std::int32_t root_call = call(root, -1, {kModelInput});
  std::int32_t stream = call(embedding, root_call, {kCallerInput});
  const std::int64_t kv = s.kv_heads * (s.hidden / s.heads);
  for (std::int64_t i = 0; i < s.layers; ++i) {
    const std::string name = "layers." + std::to_string(i);
    const ModuleIndex layer = module(list);
    result.layers.push_back(layer);
    const ModuleIndex attention = module(layer);
    const std::string attn = name + ".self_attn";
    const ModuleIndex q = linear(attention, attn + ".q_proj", s.hidden, s.hidden, s.biases);
    const ModuleIndex k = linear(attention, attn + ".k_proj", s.hidden, kv, s.biases);
    const ModuleIndex v = linear(attention, attn + ".v_proj", s.hidden, kv, s.biases);
    const ModuleIndex o = linear(attention, attn + ".o_proj", s.hidden, s.hidden, false);
    const ModuleIndex mlp = module(layer);
    const ModuleIndex gate = linear(mlp, name + ".mlp.gate_proj", s.hidden, s.intermediate, false);
    const ModuleIndex up = linear(mlp, name + ".mlp.up_proj", s.hidden, s.intermediate, false);
    const ModuleIndex down = linear(mlp, name + ".mlp.down_proj", s.intermediate, s.hidden, false);
    const ModuleIndex activation = module(mlp);
    const ModuleIndex norm1 =
        module(layer, {parameter(name + ".input_layernorm.weight", s.hidden)});
    const ModuleIndex norm2 =
        module(layer, {parameter(name + ".post_attention_layernorm.weight", s.hidden)});
    const ModuleIndex dropout = s.dropout ? module(layer) : -1;

    const std::int32_t layer_call = call(layer, root_call, {stream});
    calls[static_cast<std::size_t>(layer_call)].checkpointed = true;
    const std::int32_t norm1_call = call(norm1, layer_call, {kCallerInput});
    const std::int32_t attention_call = call(attention, layer_call, {norm1_call});
    calls[static_cast<std::size_t>(attention_call)].positional = !s.keyword_attention;
    const std::int32_t q_call = call(q, attention_call, {kCallerInput});
    const std::int32_t k_call = call(k, attention_call, {kCallerInput});
    const std::int32_t v_call = call(v, attention_call, {kCallerInput});
    const std::int32_t o_call = call(o, attention_call, {q_call, k_call, v_call});
    container(attention_call, {o_call});
    std::vector<std::int32_t> stream_inside{kCallerInput};
    if (!s.parallel_residual) stream_inside.push_back(attention_call);
    const std::int32_t norm2_call = call(norm2, layer_call, stream_inside);
    const std::int32_t mlp_call = call(mlp, layer_call, {norm2_call});
    const std::int32_t gate_call = call(gate, mlp_call, {kCallerInput});
    const std::int32_t activation_call = call(activation, mlp_call, {gate_call});
    const std::int32_t up_call = call(up, mlp_call, {kCallerInput});
    const std::int32_t down_call = call(down, mlp_call, {activation_call, up_call});
    container(mlp_call, {down_call});
    const std::int32_t last = s.dropout ? call(dropout, layer_call, {mlp_call}) : mlp_call;
    container(layer_call, {kCallerInput, attention_call, last});
    stream = layer_call;
  }
  const ModuleIndex norm = module(root, {parameter("norm.weight", s.hidden)});
  const ModuleIndex head =
      s.tied ? module(root, {0}) : linear(root, "lm_head", s.hidden, s.vocabulary, false);
  const std::int32_t norm_call = call(norm, root_call, {stream});
  const std::int32_t head_call = call(head, root_call, {norm_call});
  container(root_call, {head_call});
  return result;
}

inline std::int64_t total_elements(const FetchModel& model) {
  std::int64_t total = 0;
  for (const EngineParameter& parameter : model.parameters) total += parameter.numel.count();
  return total;
}

}  // namespace zeroplan
