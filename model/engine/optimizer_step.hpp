// The optimizer step: overflow check, norms, update of each group or sub-group, copies back to the
// weights, gathering of what the ranks updated.
//
// Sources (DeepSpeed 0.19.6): runtime/zero/stage_1_and_2.py step, has_overflow, scaled_global_norm,
// unscale_and_clip_grads; runtime/zero/stage3.py step, _overflow_check_and_loss_scale_update,
// _get_norm_groups, _prepare_fp32_grad_for_sub_group, _post_step; runtime/utils.py
// all_gather_into_tensor_dp_groups, clip_grad_norm_; runtime/bf16_optimizer.py step;
// runtime/fp16/fused_optimizer.py and unfused_optimizer.py step; runtime/engine.py
// clip_fp32_gradients. Where 0.12 to 0.16 differ the statement says so.
#pragma once

#include <span>

#include "model/engine/engine_action.hpp"
#include "model/engine/engine_config.hpp"

namespace zeroplan {

// Are gradients scanned for inf and nan before the step? fp16 always; bf16 by
// bf16.check_grad_overflow in stages 1 and 2 (up to 0.16: never; stage 3 scans fp16 only); fp32 and
// BF16_Optimizer never.
bool checks_overflow(const EngineConfig& config);

// Kernels of a scan. 0.19 reduces before it tests: the largest and the smallest number, and ten
// kernels of those two (runtime/utils.py has_inf_or_nan; counted in rehearsals of 0.19.6).
std::int64_t overflow_scan_kernels(const EngineConfig& config);

// Appends the step of config.rank. `overflowed`: the check found inf or nan and the step is
// skipped.
void optimizer_step(const EngineConfig& config,
                    std::span<const EngineParameter> parameters,
                    bool overflowed,
                    EngineActions& out);

}  // namespace zeroplan
