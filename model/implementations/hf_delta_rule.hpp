// The gated delta rule of transformers 5.17 in PyTorch's own operations (modeling_qwen3_5.py,
// torch_chunk_gated_delta_rule), which layers with linear attention run where the package
// flash-linear-attention is not installed, and by that package's kernels.
#pragma once

#include <string_view>

#include "model/implementations/hf_common.hpp"

namespace zeroplan::hf {

struct DeltaRuleInputs {
  Tensor query, key;   // (b, s, heads or so many that each serves several of those, d)
  Tensor value;        // (b, s, heads, d)
  Tensor decay, beta;  // (b, s, heads); decay in fp32
  // Turns of the loop over chunks of 64 positions that are recorded at most; where there are more
  // chunks, a turn stands for several that are alike (Tape::InARow). Left out: how PyTorch's
  // allocator lays out what each of them keeps. Checked by tests/unit/model/implementations/
  // graph_hybrid_test.cpp against the whole loop.
  std::int64_t most_turns = 16;
};

// The function's name, under which a traced document has it as one operation.
inline constexpr std::string_view kDeltaRule = "chunk_gated_delta_rule";

// Who computes it: of a graph, for its assumptions.
const char* who_computes(LinearAttention linear_attention);

// (b, s, heads, value_dim) in the dtype of the query; `state` is what the sequence leaves behind,
// (b, heads, key_dim, value_dim) in fp32.
Tensor chunk_gated_delta_rule(Tape& t, const DeltaRuleInputs& given, Tensor& state);

// The rule by whom the options name; fla's `state` is there where `caches` is.
Tensor gated_delta_rule(
    Tape& t, LinearAttention by, const DeltaRuleInputs& given, bool caches, Tensor& state);

}  // namespace zeroplan::hf
