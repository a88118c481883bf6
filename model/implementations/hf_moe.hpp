// Routed experts whose weights stand in stacked parameters, one for all experts (transformers 5,
// integrations/moe.py): what the families that have them share.
#pragma once

#include <string>

#include "model/implementations/hf_common.hpp"

namespace zeroplan::hf {

// down_proj(act(gate_proj(x)) * up_proj(x)) of the module, as LlamaMLP.
Tensor gated_mlp(Tape& t, const Context& c, const std::string& module, const Tensor& x);

// The kernels of grouped products in the model's precision on its GPU.
aten::GroupedProducts products_on(const Context& c);

// The module "experts": grouped products over `hidden` (tokens, h), each token's results by its
// `weights` (tokens, experts_per_token), summed.
Tensor fused_experts(Tape& t, const Context& c, const Tensor& hidden, const Tensor& weights);

}  // namespace zeroplan::hf
