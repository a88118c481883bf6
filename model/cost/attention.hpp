// Time of fused attention by its implementation. The version of the kernel is worth a factor of
// two, so it is named, not averaged.
//
// Units: Seconds. Floating-point operations: 4 B H S^2 d forward, causal counts half; backward
// 2.5 times that, because it computes the scores again.
#pragma once

#include <string_view>

#include "model/cost/coefficients.hpp"
#include "model/graph/graph.hpp"
#include "model/hardware/hardware.hpp"
#include "model/release_rule.hpp"
#include "model/software.hpp"
#include "model/workload.hpp"

namespace zeroplan {

enum class AttentionKernel {
  flash1,  // FlashAttention-1
  triton,  // llm-foundry's Triton kernel of 2022-2024
  flash2,
  flash3,   // Hopper only
  cudnn,    // Hopper and newer
  cutlass,  // xformers' memory-efficient kernel, PyTorch's backend of that name
  math,     // no fused kernel: the passes of a softmax between two products
};
inline constexpr EnumNames<AttentionKernel, 7> kAttentionKernelNames{
    {"flash1", "triton", "flash2", "flash3", "cudnn", "cutlass", "math"}};

struct AttentionSoftware {
  Attention requested = Attention::sdpa;
  Implementation implementation = Implementation::hf;
  Version torch;
  bool torch_said = true;  // false: a default, which tells nothing of old measurements
  bool embedded = false;   // the embedded runtime
  RuleSwitches switched;   // of the rules about torch

  bool acts(ReleaseRule rule) const {
    return zeroplan::acts(rule, Package::torch, torch, switched);
  }
};

// [T7] Which kernel a call is. Rules, first that applies:
//   1. backend math: math.
//   2. GPUs before sm 7.5, or sm 7.5 without FlashAttention-1: cutlass (FlashAttention needs
//      sm 8.0, version 1 in torch 2.0 and 2.1 sm 7.5).
//   3. backend mem_efficient: cutlass.
//   4. Composer before it has FlashAttention-2, or where nobody said which: triton (llm-foundry's
//   tables of 2023
//      and 2024: attention 1.9 times slower than FlashAttention-2's chart, at head dimension 128
//      faster than FlashAttention-1's).
//   5. torch without FlashAttention-2: flash1 in SDPA, and in what goes with older ones.
//   6. SDPA of torch 2.5.0 on sm 9.0 and newer, and of 2.11 and newer on sm 9.0 and 10.0: cudnn.
//      check_prefer_cudnn_attention of aten/native/transformers/cuda/sdp_utils.cpp asks for a cuDNN
//      behind 9.15.0, which 2.11 is the first to bring (transformers' pull request 48163); seen
//      with 2.11.0 on an H200 (profiles/measured/NVIDIA_H200). The embedded runtime on these GPUs,
//      too, of what it gives to cuDNN: 16 bits, no ALiBi, head_dim a multiple of 8 up to 128
//      (docs/gpu.md).
//   7. flash2. FlashAttention-3 is a package of its own that no workload key names.
// Checked by tests/unit/model/cost/kernel_time_test.cpp.
AttentionKernel attention_kernel(const AttentionCall& call,
                                 const AttentionSoftware& software,
                                 const Gpu& gpu);

// [T8] One call of a fused kernel:
//
//   ctas = B H ceil(S_q / 128),  x = ctas / SM,  w = max(1, x + (ceil(x) - x) / 2)
//   t = t_0 + r w 4 128 d (L + l_0) / (P / SM  e)
//
// L keys a query sees: S_k, causal (S_k + 128) / 2 and at least; r = 1 forward, 2.5 over the
// backward pass's relative rate backward. e and l_0 by kernel and head dimension (interpolated
// between 64, 128 and 256). Source: fitted to the charts of FlashAttention-2 and -3 (median error
// 1-4 %). Left out: masks, dropout, deterministic backward. AttentionKernel::math is no kernel: the
// graph holds its operations. Checked by tests/published/attention_times_test.cpp.
Seconds attention_time(const AttentionCall& call,
                       AttentionKernel kernel,
                       const Gpu& gpu,
                       const Coefficients& coefficients);

}  // namespace zeroplan
