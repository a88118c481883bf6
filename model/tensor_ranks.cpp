#include "model/tensor_ranks.hpp"

#include <algorithm>
#include <array>

namespace zeroplan {
namespace {

// Classes whose plan names no other style than those of tensor_shard() and of head norms.
constexpr std::array<std::string_view, 13> kClasses = {"cohere",
                                                       "cohere2",
                                                       "gemma",
                                                       "gemma2",
                                                       "gemma3_text",
                                                       "granite",
                                                       "llama",
                                                       "mistral",
                                                       "olmo",
                                                       "qwen2",
                                                       "qwen3",
                                                       "smollm3",
                                                       "starcoder2"};
constexpr std::array<std::string_view, 6> kColumns = {
    "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "c_fc"};
constexpr std::array<std::string_view, 3> kRows = {"o_proj", "down_proj", "c_proj"};

template <std::size_t n>
bool has(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void cut(Parameter& parameter, std::size_t dimension, std::int64_t ranks) {
  parameter.shape[dimension] /= ranks;
  parameter.numel = Elements::of(parameter.numel.count() / ranks);
}

}  // namespace

TensorShard tensor_shard(const Model& model, std::string_view module) {
  if (module == "lm_head") {
    return model.shape.tied_embeddings ? TensorShard::whole : TensorShard::gathered_columns;
  }
  const std::string_view own = module.substr(module.rfind('.') + 1);
  if (has(kColumns, own)) return TensorShard::columns;
  return has(kRows, own) ? TensorShard::rows : TensorShard::whole;
}

bool has_head_norms(const Model& model) {
  return std::any_of(model.modules.begin(), model.modules.end(), [](const Module& module) {
    return module.name.ends_with(".q_norm");
  });
}

Phrase uneven_shares(const TransformerShape& shape, std::int64_t ranks) {
  if (shape.heads % ranks != 0) {
    return phrase("tensor-parallel ranks that divide {} attention heads", shape.heads);
  }
  if (shape.intermediate % ranks != 0) {
    return phrase("tensor-parallel ranks that divide a feed-forward width of {}",
                  shape.intermediate);
  }
  return "";
}

Phrase autotp_refusal(const Model& model, std::int64_t ranks) {
  const TransformerShape& shape = model.shape;
  if (!has(kClasses, model.model_type) || shape.experts.experts > 0) {
    return phrase(
        "a class whose tensor-parallel plan DeepSpeed's AutoTP reads and zeroplan "
        "describes, not {}",
        model.architecture);
  }
  if (shape.kv_heads % ranks != 0) {
    return phrase("tensor-parallel ranks that divide {} key-value heads", shape.kv_heads);
  }
  if (!shape.tied_embeddings && shape.vocabulary % ranks != 0) {
    return phrase("tensor-parallel ranks that divide a vocabulary of {}", shape.vocabulary);
  }
  return uneven_shares(shape, ranks);
}

Model autotp_model(const Model& model, std::int64_t ranks, bool cuts_head) {
  Model result = model;
  result.shape.heads /= ranks;
  result.shape.kv_heads /= ranks;
  result.shape.intermediate /= ranks;
  for (const Module& module : model.modules) {
    const TensorShard shard = tensor_shard(model, module.name);
    if (shard == TensorShard::whole) continue;
    if (shard == TensorShard::gathered_columns && !cuts_head) continue;
    for (const int index : module.parameters) {
      Parameter& parameter = result.parameters[static_cast<std::size_t>(index)];
      const bool is_matrix = parameter.shape.size() > 1;
      if (shard != TensorShard::rows) cut(parameter, 0, ranks);
      if (shard == TensorShard::rows && is_matrix) cut(parameter, 1, ranks);
    }
  }
  return result;
}

}  // namespace zeroplan
