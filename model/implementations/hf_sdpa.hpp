// Which kernel F.scaled_dot_product_attention takes for tensors that are there.
#pragma once

#include "model/implementations/hf_common.hpp"

namespace zeroplan::hf {

struct SdpaCall {
  bool masked = false;
  bool mask_trains = false;  // the mask holds a bias that is learned
  bool causal = false;
  bool enable_gqa = true;  // fewer heads of keys than of queries; without, they are broadcast
  double dropout = 0.0;
};

// q, k, v are (b, heads, s, d). Source: ATen/native/transformers/cuda/sdp_utils.cpp.
aten::Sdpa sdpa_options(
    const Context& c, const Tensor& q, const Tensor& k, const Tensor& v, const SdpaCall& call);

}  // namespace zeroplan::hf
