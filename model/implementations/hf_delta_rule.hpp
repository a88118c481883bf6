// The gated delta rule of transformers 5.17 in PyTorch's own operations (modeling_qwen3_5.py,
// torch_chunk_gated_delta_rule): what layers with linear attention run where the packages
// flash-linear-attention and causal-conv1d are not installed.
#pragma once

#include "model/implementations/hf_common.hpp"

namespace zeroplan::hf {

struct DeltaRuleInputs {
  Tensor query, key, value;  // (b, s, heads, d)
  Tensor decay, beta;        // (b, s, heads); decay in fp32
};

// (b, s, heads, value_dim) in the dtype of the query; `state` is what the sequence leaves behind,
// (b, heads, key_dim, value_dim) in fp32.
Tensor chunk_gated_delta_rule(Tape& t, const DeltaRuleInputs& given, Tensor& state);

}  // namespace zeroplan::hf
