// Symbols: b batch, s sequence, V vocabulary, N scored tokens of all rows, T = b (s - 1).
//
// Sources: TRL 1.16.0 experimental/gkd/gkd_trainer.py (compute_loss, generalized_jsd_loss); PyTorch
// 2.11 aten/src/ATen/native/Loss.cpp kl_div, ReduceOps.cpp logsumexp, torch/csrc/autograd/
// FunctionsManual.cpp logsumexp_backward.
#include "model/implementations/hf_distillation.hpp"

#include <algorithm>
#include <utility>

namespace zeroplan::hf {
namespace {

// exp(x), which saves its result.
Tensor exponential(Tape& t, const Tensor& x) {
  Tensor out = t.empty(x.shape().as_contiguous(), x.dtype());
  t.launch({.name = "exp", .traffic = x.bytes() * 2});
  if (!t.trains({&x})) return out;
  const Tensor saved = t.save(out);
  t.record({&out}, {&x}, [saved](Backward& b) {
    Tensor gradient = b.tape.empty(saved.shape(), saved.dtype());
    b.tape.launch({.name = "mul", .traffic = gradient.bytes() * 3});
    b.give(0, std::move(gradient));
  });
  return out;
}

// F.kl_div(input, target, reduction="none", log_target=True): exp(target) * (target - input).
Tensor divergence_of(Tape& t, const Tensor& input, const Tensor& target) {
  // The right operand is computed first.
  Tensor difference = aten::sub(t, target, input);
  const Tensor probabilities = exponential(t, target);
  return aten::mul(t, probabilities, difference);
}

// torch.stack([x, y]): backward gives each its part of the gradient, which is a view.
Tensor stack(Tape& t, const Tensor& x, const Tensor& y) {
  const Tensor first = aten::unsqueeze(t, x, 0);
  const Tensor second = aten::unsqueeze(t, y, 0);
  return aten::cat(t, {&first, &second}, 0);
}

// torch.logsumexp(x, dim=0) of two: their largest, and a sum of exponentials.
Tensor log_sum_of_two(Tape& t, const Tensor& x) {
  const Shape shape = x.shape().without(0).as_contiguous();
  const Tensor saved = t.save(x);
  const Tensor largest = t.empty(shape, x.dtype());
  t.launch({.name = "amax", .kind = OpKind::reduction, .traffic = x.bytes() + largest.bytes()});
  {
    const Tensor absolute = t.empty(shape, x.dtype());
    t.launch({.name = "abs", .traffic = largest.bytes() * 2});
    const Tensor infinite = t.empty(shape, DType::boolean);
    t.launch({.name = "eq", .traffic = absolute.bytes() * 3, .kernels = 2});
  }
  Tensor out;
  {
    const Tensor shifted = t.empty(x.shape().as_contiguous(), x.dtype());
    t.launch({.name = "sub", .traffic = x.bytes() * 5, .kernels = 2});
    out = t.empty(shape, x.dtype());
    t.launch({.name = "sum", .kind = OpKind::reduction, .traffic = x.bytes() * 2, .kernels = 3});
  }
  const Tensor saved_out = t.save(out);
  t.record({&out}, {&x}, [saved, saved_out](Backward& b) {
    // One expression, as in FunctionsManual.cpp: its temporaries go at its end.
    const Shape whole = saved.shape().as_contiguous();
    const Tensor powers = b.tape.empty(whole, saved.dtype());
    b.tape.launch({.name = "sub", .traffic = saved.bytes() * 2});
    const Tensor exponentials = b.tape.empty(whole, saved.dtype());
    b.tape.launch({.name = "exp", .traffic = saved.bytes() * 2});
    Tensor gradient = b.tape.empty(whole, saved.dtype());
    b.tape.launch({.name = "mul", .traffic = saved.bytes() * 2});
    b.give(0, std::move(gradient));
  });
  return out;
}

// x[mask] of (b, s - 1, V): row numbers, then a copy of the N rows. Backward: zeros of the whole,
// then a sorted index_put of the rows, which are made dense for it.
Tensor rows_of_logits(Tape& t, const Tensor& x, std::int64_t scored) {
  Tensor out = t.empty(Shape{scored, x.size(-1)}, x.dtype());
  const Tensor places = t.empty(Shape{2, scored}, DType::int64);
  t.launch({.name = "index", .kind = OpKind::gather, .traffic = out.bytes() * 2, .kernels = 4});
  const Tensor saved = t.save(places);
  t.record(
      {&out}, {&x}, [whole = x.shape().as_contiguous(), rows = out.shape(), saved](Backward& b) {
        const DType dtype = b.gradient().dtype();
        Tensor gradient = b.tape.empty(whole, dtype);
        const Tensor dense = b.tape.empty(rows, dtype);
        const Tensor order = b.tape.empty(saved.shape(), DType::int64);
        const Tensor sorted = b.tape.empty(saved.shape(), DType::int64);
        b.tape.launch({.name = "index_put_",
                       .kind = OpKind::scatter,
                       .traffic = gradient.bytes() + dense.bytes() * 4,
                       .kernels = 9});
        b.give(0, std::move(gradient));
      });
  return out;
}

// A sum over all of it; its gradient is the scalar's, expanded.
Tensor sum_of_all(Tape& t, const Tensor& x) {
  Tensor out = t.empty(Shape{}, x.dtype());
  t.launch({.name = "sum", .kind = OpKind::reduction, .traffic = x.bytes(), .kernels = 2});
  t.record({&out}, {&x}, [](Backward& b) { b.give(0, b.gradient()); });
  return out;
}

// The divergence of every word at every position, and its parts, which live as long as TRL's
// function runs.
struct Divergence {
  Tensor of_teacher, of_student, sum;
};

// beta between 0 and 1: both distributions against their mixture, whose logarithm is
// logsumexp([log p + log(1 - beta), log q + log beta]).
Divergence mixed_divergence(Tape& t, const Tensor& student, const Tensor& teacher) {
  Tensor stacked;
  {
    const Tensor of_student = aten::shift(t, student);
    const Tensor of_teacher = aten::shift(t, teacher);
    stacked = stack(t, of_student, of_teacher);
  }
  const Tensor mixture = log_sum_of_two(t, stacked);
  stacked = Tensor();
  Divergence made;
  made.of_teacher = divergence_of(t, mixture, teacher);
  made.of_student = divergence_of(t, mixture, student);
  const Tensor left = aten::scale(t, made.of_teacher);
  const Tensor right = aten::scale(t, made.of_student);
  made.sum = aten::add(t, left, right);
  return made;
}

Divergence divergence(Tape& t, double beta, const Tensor& student, const Tensor& teacher) {
  Divergence made;
  if (beta <= 0.0) {
    made.sum = divergence_of(t, student, teacher);
  } else if (beta >= 1.0) {
    made.sum = divergence_of(t, teacher, student);
  } else {
    made = mixed_divergence(t, student, teacher);
  }
  return made;
}

}  // namespace

Tensor divergence_loss(Tape& t, const Context& c, const Tensor& logits) {
  t.hold(logits);
  t.run_passes_beside();
  const std::int64_t of_row = c.options.scores.tokens > 0
                                  ? std::min(c.options.scores.tokens, c.sequence - 1)
                                  : c.sequence - 1;
  const Tensor kept = aten::slice(t, logits, 1, c.sequence - 1);
  // Both are divided by the temperature, which is 1 here: copies.
  const Tensor student = aten::scale(t, kept, "div");
  const Tensor teacher = t.empty(student.shape(), student.dtype());
  t.launch({.name = "div", .traffic = teacher.bytes() * 2});
  const Tensor student_scores = aten::log_softmax(t, student);
  const Tensor teacher_scores = aten::log_softmax(t, teacher);
  Divergence made = divergence(t, c.options.scores.beta, student_scores, teacher_scores);
  made.sum = rows_of_logits(t, made.sum, c.batch * of_row);
  return sum_of_all(t, made.sum);
}

}  // namespace zeroplan::hf
