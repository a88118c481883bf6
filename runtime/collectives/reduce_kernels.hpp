// The arithmetic of collectives on one stretch of elements, on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/dtype.hpp"
#include "model/engine/engine_action.hpp"

namespace zeroplan::runtime {

// outputs[*][0, count) = inputs[0][0, count) + inputs[1][0, count) + ..., in that order, in fp32
// (fp64 and int64 in their own type), rounded once to `dtype`. An output may be an input.
// Precondition: fp32, fp64, fp16, bf16, int64, or uint8 with maximum.
void combine(std::span<const std::byte* const> inputs,
             std::span<std::byte* const> outputs,
             std::int64_t count,
             DType dtype,
             ReduceOperation operation);

}  // namespace zeroplan::runtime
