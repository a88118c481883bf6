// mamba_ssm's function replaces the rest of a Mamba 2 layer while it trains without a cache:
// the convolution (causal_conv1d's kernels), the scan, the gated norm and the output's product, as
// one autograd function (mamba_ssm/ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn
// of 2.3.2).
#pragma once

#include <string_view>

#include "model/implementations/hf_common.hpp"

namespace zeroplan::hf {

struct SplitScanInputs {
  Tensor projected;                    // zxbcdt: (b, s, 2 d + 2 groups states + heads)
  Tensor conv_weight, conv_bias;       // (channels, kernel)
  Tensor dt_bias, decay, residual;     // (heads)
  Tensor norm, out_weight, out_bias;   // norm undefined: the gate is in the scan's kernel
  std::int64_t chunk = 0, groups = 1;  // positions of a chunk; of B and C
};

inline constexpr std::string_view kSplitScan = "mamba_split_conv1d_scan_combined";

// Who computes these layers: of a graph, for its assumptions.
const char* who_scans(LinearAttention linear_attention);

// (b, s, hidden). Left out: that B's and C's gradients have parts where heads are few for the GPU,
// which kernels are tuned to which blocks, and sums of a few numbers a head.
Tensor mamba_split_scan(Tape& t, const SplitScanInputs& given);

}  // namespace zeroplan::hf
