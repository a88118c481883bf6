// What torch.autocast does to the inputs of an operation on CUDA: products and fused attention take
// the lower precision, powers, norms, softmax and losses fp32, everything else what it is given.
// Without autocast, and in formulas of backward, inputs come back as they are.
// Source: aten/src/ATen/autocast_mode.h, AT_FORALL_LOWER_PRECISION_FP and AT_FORALL_FP32.
#pragma once

#include "model/graph/autograd.hpp"

namespace zeroplan::aten {

// cached_cast to autocast's dtype of an fp32 tensor: a copy, for a parameter the engine's.
Tensor autocast_lower(Tape& t, const Tensor& x);
// cached_cast to fp32 of a 16-bit tensor.
Tensor autocast_fp32(Tape& t, const Tensor& x);

}  // namespace zeroplan::aten
