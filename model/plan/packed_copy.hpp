// A hub's copy whose weights are packed in few bits (GPTQ, AWQ), which is planned in 16 bits: how
// much smaller the packed weights are.
#pragma once

#include <optional>
#include <string_view>

#include "base/units.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

struct PackedCopy {
  std::string_view format;  // "AWQ"; lives as long as the model
  Bytes in_16_bits;         // of the linear layers
  Bytes packed;
};

// [Q1] Packed weights: n (b + (16 + b) / g) / 8 bytes.   n elements of the linear layers but the
// heads, b bits, g = 128 elements that share a scale in fp16 and a zero point of b bits. Source:
// gptqmodel nn_modules/qlinear (qweight, scales, qzeros), awq/modules/linear. GPTQ's g_idx, 4 bytes
// an input feature, is left out.   Checked by tests/unit/model/plan/packed_copy_test.cpp. Nothing
// for a model in 16 bits, and for formats that become 16 bits when they are loaded.
std::optional<PackedCopy> packed_copy(const Model& model);

}  // namespace zeroplan
