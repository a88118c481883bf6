#include "model/graph/aten_autocast.hpp"

#include "model/graph/aten.hpp"

namespace zeroplan::aten {
namespace {

Tensor cast(Tape& t, const Tensor& x, DType dtype) {
  return x.parameter() >= 0 ? t.autocast_copy(x, dtype) : to(t, x, dtype);
}

}  // namespace

Tensor autocast_lower(Tape& t, const Tensor& x) {
  const std::optional<DType> dtype = t.autocast();
  if (!dtype || !x.defined() || x.dtype() != DType::fp32) return x;
  return cast(t, x, *dtype);
}

Tensor autocast_fp32(Tape& t, const Tensor& x) {
  if (!t.autocast() || !x.defined() || width(x.dtype()) != 2) return x;
  return cast(t, x, DType::fp32);
}

}  // namespace zeroplan::aten
