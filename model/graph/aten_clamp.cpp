// Clamps: numbers between bounds, and their gradient where they were inside.
#include <utility>

#include "model/graph/aten_recurrent.hpp"

namespace zeroplan::aten {

namespace {

Tensor pointwise(Tape& t, std::string_view name, const Tensor& x, DType dtype) {
  Tensor out = t.empty(x.shape().as_dense(), dtype);
  t.launch({.name = name, .traffic = distinct_bytes(x) + out.bytes()});
  return out;
}

// clamp_backward (FunctionsManual.cpp): where(inside the bounds, gradient, 0).
BackwardFormula clamp_gradient(const Tensor& saved) {
  return [saved](Backward& b) {
    Tape& tape = b.tape;
    const Tensor zero = tape.empty(Shape{}, b.gradient().dtype());
    tape.launch({.name = "full", .kind = OpKind::fill, .traffic = zero.bytes()});
    const Tensor inside = pointwise(tape, "le", saved, DType::boolean);
    const Tensor above = pointwise(tape, "ge", saved, DType::boolean);
    tape.launch({.name = "logical_and_", .traffic = inside.bytes() * 3});
    Tensor result = tape.empty(b.gradient().shape().as_dense(), b.gradient().dtype());
    tape.launch({.name = "where", .traffic = result.bytes() * 2 + inside.bytes()});
    b.give(0, std::move(result));
  };
}

}  // namespace

Tensor clamp(Tape& t, const Tensor& x) {
  const bool trains = t.trains({&x});
  Tensor saved;
  if (trains) saved = t.save(x);
  Tensor out = pointwise(t, "clamp", x, x.dtype());
  if (trains) t.record({&out}, {&x}, clamp_gradient(saved));
  return out;
}

// VariableType: an operation in place that needs its input saves self.clone().
Tensor clamp_in_place(Tape& t, const Tensor& x) {
  const bool trains = t.trains({&x});
  Tensor saved;
  if (trains) {
    const Tensor before = pointwise(t, "clone", x, x.dtype());
    saved = t.save(before);
  }
  t.launch({.name = "clamp_", .traffic = x.bytes() * 2});
  Tensor out = t.alias(x, x.shape(), "");
  if (trains) t.record({&out}, {&x}, clamp_gradient(saved));
  return out;
}

}  // namespace zeroplan::aten
