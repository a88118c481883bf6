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

struct FusedExperts {
  aten::StackLayout layout = aten::StackLayout::out_in;
  bool biased = false;  // gate_up_proj_bias and down_proj_bias
  // Of gate and up projections in one tensor; null: act(first half) * second half.
  Tensor (*gate)(Tape& t, const Tensor& both) = nullptr;
};

// The module "experts": grouped products over `hidden` (tokens, h), each token's results by its
// `weights` (tokens, experts_per_token), summed.
Tensor fused_experts(Tape& t,
                     const Context& c,
                     const Tensor& hidden,
                     const Tensor& weights,
                     const FusedExperts& how);

}  // namespace zeroplan::hf
