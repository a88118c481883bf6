// Weights in four bits as bitsandbytes stores them: what they take, and what reading them needs.
//
// Symbols: n elements of a weight; B = 64 elements share one scale (absmax). Sources: bitsandbytes
// functional.py quantize_4bit, dequantize_4bit, nn/modules.py Params4bit; Dettmers et al. 2023,
// arXiv:2305.14314, section 3.
#pragma once

#include <cstdint>

#include "base/enum_names.hpp"
#include "base/units.hpp"

namespace zeroplan {

enum class FourBitCode { nf4, fp4 };
inline constexpr EnumNames<FourBitCode, 2> kFourBitCodeNames{{"nf4", "fp4"}};

struct FourBitWeights {
  FourBitCode code = FourBitCode::nf4;  // both cost the same
  bool double_quant = false;            // the scales are stored in eight bits
  // Read into fp16 first, then cast to the dtype of the computation: Lightning quantises an fp16
  // copy, whose dtype the quantisation state keeps.
  bool reads_fp16 = false;
  // bitsandbytes before 0.43.2 keeps the input of every layer for backward, which does not read it
  // (autograd/_functions.py MatMul4Bit: ctx.tensors = (A, B); later (None, B)). A checkpoint
  // without reentrance does not let go of it either, which is not counted.
  bool keeps_input = false;
};

inline constexpr std::int64_t kFourBitBlock = 64;        // elements that share a scale
inline constexpr std::int64_t kFourBitScaleBlock = 256;  // scales that share a scale of their own

// ceil(n / 2) bytes.
constexpr Bytes four_bit_weight(Elements n) { return Bytes::of(ceil_div(n.count(), 2)); }

// The quantisation state: a scale a block in fp32, 4 n / B bytes; twice quantised a byte a block
// and an fp32 a 256 blocks, with a table of 256 fp32 values and a mean.
constexpr Bytes four_bit_state(Elements n, bool double_quant) {
  const std::int64_t scales = ceil_div(n.count(), kFourBitBlock);
  if (!double_quant) return Bytes::of(4 * scales);
  return Bytes::of(scales + 4 * ceil_div(scales, kFourBitScaleBlock) + std::int64_t{4} * (256 + 1));
}

}  // namespace zeroplan
