#include "model/graph/aten_autocast.hpp"

#include "model/graph/aten.hpp"

namespace zeroplan::aten {
namespace {

Tensor cast(Tape& t, const Tensor& x, DType dtype) {
  if (x.parameter() < 0) return to(t, x, dtype);
  return t.autocast_copy(x, dtype, [original = x.dtype()](Backward& b) {
    b.give(0, to(b.tape, b.gradient(), original));
  });
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
