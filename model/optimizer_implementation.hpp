// How torch.optim's classes go over the tensors (torch/optim/optimizer.py
// _default_to_fused_or_foreach): by lists of them, which PyTorch 2 does on GPUs unless told
// otherwise, in one kernel, or one by one.
#pragma once

#include "base/enum_names.hpp"

namespace zeroplan {

enum class OptimizerImplementation { foreach, fused, for_loop };
inline constexpr EnumNames<OptimizerImplementation, 3> kOptimizerImplementationNames{
    {"foreach", "fused", "for-loop"}};

}  // namespace zeroplan
