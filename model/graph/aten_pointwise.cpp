// Elementwise operations, reductions, softmax, norms and losses.
#include <utility>

#include "base/check.hpp"
#include "model/graph/aten.hpp"
#include "model/graph/aten_autocast.hpp"

namespace zeroplan::aten {

namespace {

DType promoted(DType a, DType b) {
  if (a == b) return a;
  return width(a) >= width(b) ? a : b;  // among floating types: the wider one
}

// One elementwise kernel that reads `inputs` and writes a new tensor, without autograd.
Tensor kernel(Tape& t,
              std::string_view name,
              std::initializer_list<const Tensor*> inputs,
              const Shape& shape,
              DType dtype) {
  Tensor out = t.empty(shape, dtype);
  Bytes traffic = out.bytes();
  for (const Tensor* input : inputs) traffic += distinct_bytes(*input);
  t.launch({.name = name, .traffic = traffic});
  return out;
}

Tensor unary_kernel(Tape& t, std::string_view name, const Tensor& x) {
  return kernel(t, name, {&x}, x.shape().as_dense(), x.dtype());
}

Tensor binary_kernel(Tape& t, std::string_view name, const Tensor& x, const Tensor& y) {
  return kernel(
      t, name, {&x, &y}, Shape::broadcast(x.shape(), y.shape()), promoted(x.dtype(), y.dtype()));
}

// An operation whose formula is one kernel of the gradient and a saved tensor.
Tensor with_saved_input(Tape& t,
                        const Tensor& x,
                        std::string_view name,
                        std::string_view backward_name) {
  const bool trains = t.trains({&x});
  Tensor saved;
  if (trains) saved = t.save(x);
  Tensor out = unary_kernel(t, name, x);
  if (trains) {
    t.record({&out}, {&x}, [saved, backward_name](Backward& b) {
      b.give(0, binary_kernel(b.tape, backward_name, b.gradient(), saved));
    });
  }
  return out;
}

Tensor with_saved_output(Tape& t,
                         const Tensor& x,
                         std::string_view name,
                         std::string_view backward_name) {
  Tensor out = unary_kernel(t, name, x);
  if (t.trains({&x})) {
    const Tensor saved = t.save(out);
    t.record({&out}, {&x}, [saved, backward_name](Backward& b) {
      b.give(0, binary_kernel(b.tape, backward_name, b.gradient(), saved));
    });
  }
  return out;
}

// Lets go of what it is given.
void give_fitted(
    Backward& b, std::size_t input, Tensor& gradient, const Shape& shape, DType dtype) {
  if (!gradient.defined()) return;
  Tensor fitted = fit_gradient(b.tape, gradient, shape, dtype);
  gradient = Tensor();
  b.give(input, std::move(fitted));
}

}  // namespace

Tensor neg(Tape& t, const Tensor& x) {
  Tensor out = unary_kernel(t, "neg", x);
  if (t.trains({&x})) {
    t.record({&out}, {&x}, [](Backward& b) { b.give(0, neg(b.tape, b.gradient())); });
  }
  return out;
}

Tensor scale(Tape& t, const Tensor& x, std::string_view name) {
  Tensor out = unary_kernel(t, name, x);
  if (t.trains({&x})) {
    t.record({&out}, {&x}, [name](Backward& b) { b.give(0, scale(b.tape, b.gradient(), name)); });
  }
  return out;
}

// x *= number: the storage is kept, the gradient is scaled into a new one.
Tensor scale_in_place(Tape& t, const Tensor& x, std::string_view name) {
  t.launch({.name = name, .traffic = x.bytes() * 2});
  Tensor out = t.alias(x, x.shape(), "");
  if (t.trains({&x})) {
    t.record({&out}, {&x}, [](Backward& b) { b.give(0, scale(b.tape, b.gradient())); });
  }
  return out;
}

Tensor shift(Tape& t, const Tensor& x, std::string_view name) {
  Tensor out = unary_kernel(t, name, x);
  if (t.trains({&x})) t.record({&out}, {&x}, [](Backward& b) { b.give(0, b.gradient()); });
  return out;
}

Tensor add(Tape& t, const Tensor& x, const Tensor& y) {
  Tensor out = binary_kernel(t, "add", x, y);
  if (t.trains({&x, &y})) {
    t.record({&out},
             {&x, &y},
             [xs = x.shape(), ys = y.shape(), xd = x.dtype(), yd = y.dtype()](Backward& b) {
               if (b.needs(0)) b.give(0, fit_gradient(b.tape, b.gradient(), xs, xd));
               if (b.needs(1)) b.give(1, fit_gradient(b.tape, b.gradient(), ys, yd));
             });
  }
  return out;
}

// SubBackward0 computes the gradient of what is subtracted first.
Tensor sub(Tape& t, const Tensor& x, const Tensor& y) {
  Tensor out = binary_kernel(t, "sub", x, y);
  if (t.trains({&x, &y})) {
    t.record({&out},
             {&x, &y},
             [xs = x.shape(), ys = y.shape(), xd = x.dtype(), yd = y.dtype()](Backward& b) {
               if (b.needs(1)) {
                 const Tensor negated = neg(b.tape, b.gradient());
                 b.give(1, fit_gradient(b.tape, negated, ys, yd));
               }
               if (b.needs(0)) b.give(0, fit_gradient(b.tape, b.gradient(), xs, xd));
             });
  }
  return out;
}

Tensor add_in_place(Tape& t, const Tensor& x, const Tensor& y) {
  t.launch({.name = "add_", .traffic = x.bytes() * 2 + distinct_bytes(y)});
  Tensor out = t.alias(x, x.shape(), "");
  if (t.trains({&x, &y})) {
    t.record({&out}, {&x, &y}, [ys = y.shape(), yd = y.dtype()](Backward& b) {
      if (b.needs(0)) b.give(0, b.gradient());
      if (b.needs(1)) b.give(1, fit_gradient(b.tape, b.gradient(), ys, yd));
    });
  }
  return out;
}

Tensor mul(Tape& t, const Tensor& x, const Tensor& y) {
  const bool trains = t.trains({&x, &y});
  Tensor saved_x, saved_y;
  if (trains && y.requires_grad()) saved_x = t.save(x);
  if (trains && x.requires_grad()) saved_y = t.save(y);
  Tensor out = binary_kernel(t, "mul", x, y);
  if (trains) {
    t.record({&out},
             {&x, &y},
             [saved_x, saved_y, xs = x.shape(), ys = y.shape(), xd = x.dtype(), yd = y.dtype()](
                 Backward& b) {
               // `other` first, as in the generated MulBackward0; what was broadcast is summed when
               // both are there (engine.cpp validate_outputs).
               Tensor of_x, of_y;
               if (b.needs(1)) of_y = binary_kernel(b.tape, "mul", b.gradient(), saved_x);
               if (b.needs(0)) of_x = binary_kernel(b.tape, "mul", b.gradient(), saved_y);
               give_fitted(b, 0, of_x, xs, xd);
               give_fitted(b, 1, of_y, ys, yd);
             });
  }
  return out;
}

Tensor pow(Tape& t, const Tensor& input, int exponent) {
  const Tensor x = autocast_fp32(t, input);
  const bool trains = t.trains({&x});
  Tensor saved;
  if (trains) saved = t.save(x);
  Tensor out = unary_kernel(t, "pow", x);
  if (trains) {
    t.record({&out}, {&x}, [saved](Backward& b) {
      // pow_backward: grad * (exponent * self.pow(exponent - 1)), one expression: C++ keeps what is
      // in it until its end, and drops the later first.
      const Tensor power = unary_kernel(b.tape, "pow", saved);
      const Tensor factor = unary_kernel(b.tape, "mul", power);
      b.give(0, binary_kernel(b.tape, "mul", b.gradient(), factor));
    });
  }
  (void)exponent;  // every exponent costs the same
  return out;
}

Tensor rsqrt(Tape& t, const Tensor& input) {
  const Tensor x = autocast_fp32(t, input);
  Tensor out = unary_kernel(t, "rsqrt", x);
  if (t.trains({&x})) {
    const Tensor saved = t.save(out);
    t.record({&out}, {&x}, [saved](Backward& b) {
      // -0.5 * grad * result.pow(3)
      const Tensor half = unary_kernel(b.tape, "mul", b.gradient());
      const Tensor cube = unary_kernel(b.tape, "pow", saved);
      b.give(0, binary_kernel(b.tape, "mul", half, cube));
    });
  }
  return out;
}

Tensor tanh(Tape& t, const Tensor& x) { return with_saved_output(t, x, "tanh", "tanh_backward"); }
Tensor sigmoid(Tape& t, const Tensor& x) {
  return with_saved_output(t, x, "sigmoid", "sigmoid_backward");
}
Tensor relu(Tape& t, const Tensor& x) {
  return with_saved_output(t, x, "relu", "threshold_backward");
}
Tensor silu(Tape& t, const Tensor& x) { return with_saved_input(t, x, "silu", "silu_backward"); }
Tensor gelu(Tape& t, const Tensor& x) { return with_saved_input(t, x, "gelu", "gelu_backward"); }

Tensor maximum_scalar(Tape& t, const Tensor& x) {
  Tensor bound = t.empty(Shape{}, DType::fp32);  // torch.tensor of a Python number
  t.launch({.name = "full", .kind = OpKind::fill, .traffic = bound.bytes()});
  const bool trains = t.trains({&x});
  Tensor saved, saved_bound;
  if (trains) {
    saved = t.save(x);
    saved_bound = t.save(bound);
  }
  Tensor out = kernel(t, "maximum", {&x, &bound}, x.shape().as_dense(), x.dtype());
  if (trains) {
    t.record({&out}, {&x}, [saved, saved_bound](Backward& b) {
      // where(self == other, grad / 2, grad).masked_fill_(self < other, 0)
      Tape& tape = b.tape;
      const Tensor equal = kernel(tape, "eq", {&saved}, saved.shape().as_dense(), DType::boolean);
      const Tensor half = unary_kernel(tape, "div", b.gradient());
      Tensor result = kernel(
          tape, "where", {&equal, &half, &b.gradient()}, half.shape().as_dense(), half.dtype());
      const Tensor less = kernel(tape, "lt", {&saved}, saved.shape().as_dense(), DType::boolean);
      tape.launch({.name = "masked_fill_", .traffic = result.bytes() * 2 + less.bytes()});
      b.give(0, std::move(result));
    });
  }
  return out;
}

Tensor masked_fill(Tape& t, const Tensor& x, const Tensor& mask) {
  const bool trains = t.trains({&x});
  Tensor saved;
  if (trains) saved = t.save(mask);
  Tensor out = kernel(t, "masked_fill", {&x, &mask}, x.shape().as_dense(), x.dtype());
  if (trains) {
    t.record({&out}, {&x}, [saved](Backward& b) {
      b.give(0,
             kernel(b.tape,
                    "masked_fill",
                    {&b.gradient(), &saved},
                    b.gradient().shape().as_dense(),
                    b.gradient().dtype()));
    });
  }
  return out;
}

Tensor dropout(Tape& t, const Tensor& x, double probability) {
  if (probability == 0.0) return x;  // native/Dropout.cpp: is_fused needs 0 < p < 1
  // native_dropout (cuda/Dropout.cu dropout_cuda): a bool mask, then the result
  const Tensor mask = t.empty(x.shape().as_dense(), DType::boolean);
  Tensor out = t.empty(x.shape().as_dense(), x.dtype());
  t.launch({.name = "native_dropout", .traffic = distinct_bytes(x) + out.bytes() + mask.bytes()});
  if (t.trains({&x})) {
    const Tensor saved = t.save(mask);
    t.record({&out}, {&x}, [saved](Backward& b) {
      b.give(0,
             kernel(b.tape,
                    "native_dropout_backward",
                    {&b.gradient(), &saved},
                    saved.shape(),
                    b.gradient().dtype()));
    });
  }
  return out;
}

Tensor mean_last(Tape& t, const Tensor& x) {
  Tensor out = t.empty(x.shape().with_size(-1, 1).as_contiguous(), x.dtype());
  t.launch({.name = "mean", .kind = OpKind::reduction, .traffic = distinct_bytes(x) + out.bytes()});
  if (t.trains({&x})) {
    t.record({&out}, {&x}, [shape = x.shape()](Backward& b) {
      // mean_backward: grad.expand(sizes) / n
      const Tensor spread =
          b.tape.alias(b.gradient(), b.gradient().shape().expanded(shape), "expand");
      b.give(0, kernel(b.tape, "div", {&spread}, shape.as_contiguous(), spread.dtype()));
    });
  }
  return out;
}

namespace {

// The node of _softmax and _log_softmax: the output is saved. The gradient's dtype differs from the
// output's where the fused kernel read fp16 and wrote fp32.
void record_softmax(Tape& t, const Tensor& x, Tensor& out, bool logarithm) {
  if (!t.trains({&x})) return;
  const Tensor saved = t.save(out);
  t.record({&out}, {&x}, [saved, logarithm, dtype = x.dtype()](Backward& b) {
    Tape& tape = b.tape;
    Tensor result = tape.empty(saved.shape(), dtype);
    Tensor product;
    if (!logarithm) {
      // softmax_backward_cuda_out (SoftMax.cu), which is given its result: Tensor tmp = grad *
      // output
      product = tape.empty(saved.shape(), saved.dtype(), MemoryCategory::temporaries);
    }
    tape.launch({.name = logarithm ? "_log_softmax_backward_data" : "_softmax_backward_data",
                 .kind = OpKind::softmax,
                 .traffic = saved.bytes() * (logarithm ? 2 : 5) + result.bytes(),
                 .kernels = logarithm ? 1 : 2});
    b.give(0, std::move(result));
  });
}

Tensor softmax_op(Tape& t, const Tensor& x, DType dtype, bool logarithm) {
  Tensor out = t.empty(x.shape().as_contiguous(), dtype);
  t.launch({.name = logarithm ? "_log_softmax" : "_softmax",
            .kind = OpKind::softmax,
            .traffic = distinct_bytes(x) + out.bytes()});
  record_softmax(t, x, out, logarithm);
  return out;
}

}  // namespace

// _safe_softmax (native/transformers/attention.cpp, torch 2.5): softmax, then where(all(x == -inf),
// 0, it). One node for autograd, whose saved output is the last of its tensors.
Tensor safe_softmax(Tape& t, const Tensor& x, bool in_place) {
  Tensor out;
  {
    // Inside one dispatched operation: autograd and a dispatch mode see its result alone.
    constexpr MemoryCategory kInside = MemoryCategory::temporaries;
    const Shape shape = x.shape().as_contiguous();
    const Tensor plain = in_place ? t.empty(shape, x.dtype()) : t.empty(shape, x.dtype(), kInside);
    const Tensor masked = t.empty(shape, DType::boolean, kInside);
    const Tensor rows =
        t.empty(x.shape().with_size(-1, 1).as_contiguous(), DType::boolean, kInside);
    t.launch({.name = "_safe_softmax",
              .kind = OpKind::softmax,
              .traffic = distinct_bytes(x) + plain.bytes()});
    t.launch({.name = "eq", .traffic = distinct_bytes(x) + masked.bytes()});
    t.launch({.name = "all", .kind = OpKind::reduction, .traffic = masked.bytes() + rows.bytes()});
    out = in_place ? plain : t.empty(shape, x.dtype());
    t.launch({.name = "where", .traffic = plain.bytes() * 2 + rows.bytes()});
  }
  record_softmax(t, x, out, false);
  return out;
}

Tensor softmax(Tape& t, const Tensor& x, std::optional<DType> dtype) {
  // Under autocast a softmax without a dtype is asked for fp32 (AT_FORALL_FP32_SET_OPT_DTYPE).
  const DType wanted = dtype.value_or(t.autocast() ? DType::fp32 : x.dtype());
  if (wanted == x.dtype()) return softmax_op(t, x, wanted, false);
  // native/SoftMax.cpp: on CUDA fp16 is read by the fp32 kernel, anything else is converted first.
  if (x.dtype() == DType::fp16 && wanted == DType::fp32) return softmax_op(t, x, wanted, false);
  const Tensor converted = to(t, x, wanted);
  return softmax_op(t, converted, wanted, false);
}

// As a part of the cross entropy, whose inputs autocast makes fp32.
Tensor log_softmax(Tape& t, const Tensor& input) {
  const Tensor x = autocast_fp32(t, input);
  return softmax_op(t, x, x.dtype(), true);
}

// nll_loss_forward keeps its input, the labels and total_weight.
Tensor nll_loss(Tape& t, const Tensor& log_probabilities, const Tensor& labels) {
  const Tensor& x = log_probabilities;
  const bool trains = t.trains({&x});
  Tensor saved, saved_labels;
  if (trains) saved = t.save(x);
  if (trains && labels.defined()) saved_labels = t.save(labels);
  Tensor loss = t.empty(Shape{}, x.dtype());
  const Tensor total_weight = t.empty(Shape{}, x.dtype());
  t.launch({.name = "nll_loss_forward",
            .kind = OpKind::gather,
            .traffic = Bytes::of(x.size(0) * (8 + width(x.dtype())))});
  if (trains) {
    const Tensor saved_weight = t.save(total_weight);
    t.record({&loss}, {&x}, [saved, saved_weight, saved_labels](Backward& b) {
      // nll_loss_backward: zeros of the input's size, then one write a row
      Tensor gradient = b.tape.empty(saved.shape(), saved.dtype());
      b.tape.launch({.name = "nll_loss_backward",
                     .kind = OpKind::fill,
                     .traffic = gradient.bytes(),
                     .kernels = 2});
      b.give(0, std::move(gradient));
    });
  }
  return loss;
}

Tensor layer_norm(Tape& t, const Tensor& input, const Tensor& scale, const Tensor& offset) {
  const Tensor x = autocast_fp32(t, input);
  const Tensor weight = autocast_fp32(t, scale);
  const Tensor bias = autocast_fp32(t, offset);
  const bool trains = t.trains({&x, &weight, &bias});
  const Tensor dense = contiguous(t, x);
  Tensor saved;
  if (trains) saved = t.save(dense);
  Tensor out = t.empty(dense.shape(), x.dtype());
  const Shape rows = x.shape().with_size(-1, 1).as_contiguous();
  const Tensor mean = t.empty(rows, DType::fp32);  // acc_type, layer_norm_kernel.cu
  const Tensor rstd = t.empty(rows, DType::fp32);
  t.launch({.name = "native_layer_norm", .kind = OpKind::norm, .traffic = x.bytes() * 2});
  if (!trains) return out;
  const Tensor saved_mean = t.save(mean), saved_rstd = t.save(rstd);
  t.record(
      {&out},
      {&dense, &weight, &bias},
      [saved, saved_mean, saved_rstd, weight_shape = weight.shape(), has_bias = bias.defined()](
          Backward& b) {
        Tape& tape = b.tape;
        const Tensor gradient = contiguous(tape, b.gradient());
        Tensor dx, dweight, dbias;
        if (b.needs(0)) dx = tape.empty(saved.shape(), gradient.dtype());
        if (b.needs(1)) dweight = tape.empty(weight_shape, gradient.dtype());
        if (has_bias && b.needs(2)) dbias = tape.empty(weight_shape, gradient.dtype());
        const bool parameters = b.needs(1) || (has_bias && b.needs(2));
        tape.launch({.name = "native_layer_norm_backward",
                     .kind = OpKind::norm,
                     .traffic = saved.bytes() * (parameters ? 5 : 3),
                     .kernels = parameters ? 2 : 1});
        if (dx.defined()) b.give(0, std::move(dx));
        if (dweight.defined()) b.give(1, std::move(dweight));
        if (dbias.defined()) b.give(2, std::move(dbias));
      });
  return out;
}

}  // namespace zeroplan::aten
