// What the engine does with flat memory besides kernels of the model: conversions, sums, norms.
// Counts are elements. dtypes: fp32, bf16, fp16.
#pragma once

#include <cstddef>

#include "base/units.hpp"
#include "model/dtype.hpp"

namespace zeroplan::runtime {

inline std::byte* advance(std::byte* data, Elements elements, DType dtype) {
  return data + (elements * dtype).count();
}
inline const std::byte* advance(const std::byte* data, Elements elements, DType dtype) {
  return data + (elements * dtype).count();
}

// to[i] = factor * from[i]; `to` may be `from` where the dtypes are equal.
void convert(const std::byte* from,
             DType from_dtype,
             std::byte* to,
             DType to_dtype,
             Elements count,
             double factor = 1.0);

// to[i] += from[i], rounded once.
void add_to(std::byte* to, DType to_dtype, const std::byte* from, DType from_dtype, Elements count);

double squares_of(const std::byte* data, DType dtype, Elements count);
bool overflows(const std::byte* data, DType dtype, Elements count);

}  // namespace zeroplan::runtime
