// Views, copies, casts: operations that compute nothing.
#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "model/graph/aten_recurrent.hpp"

namespace zeroplan::aten {

namespace {

// An elementwise kernel into a new tensor like x, without autograd.
Tensor copy_kernel(
    Tape& t, const Tensor& x, const Shape& shape, DType dtype, std::string_view name) {
  Tensor out = t.empty(shape, dtype);
  t.launch({.name = name, .kind = OpKind::copy, .traffic = distinct_bytes(x) + out.bytes()});
  return out;
}

// A view whose gradient is viewed back by `inverse`.
template <typename Inverse>
Tensor view_op(
    Tape& t, const Tensor& x, const Shape& shape, std::string_view name, Inverse inverse) {
  Tensor out = t.alias(x, shape, name);
  if (t.trains({&x})) {
    t.record({&out}, {&x}, [inverse](Backward& b) { b.give(0, inverse(b.tape, b.gradient())); });
  }
  return out;
}

}  // namespace

Bytes distinct_bytes(const Tensor& x) {
  Elements n = 1_elements;
  for (int d = 0; d < x.shape().rank(); ++d) {
    if (x.shape().stride(d) != 0 || x.size(d) == 1) n = n * x.size(d);
  }
  return n * x.dtype();
}

Tensor view(Tape& t, const Tensor& x, const Shape& sizes) {
  Shape shape;
  ZP_CHECK(x.shape().viewable_as(sizes, shape), "view: the strides need a copy");
  return view_op(t, x, shape, "view", [original = x.shape()](Tape& tape, const Tensor& g) {
    return reshape(tape, g, original);
  });
}

Tensor reshape(Tape& t, const Tensor& x, const Shape& sizes) {
  Shape shape;
  if (x.shape().viewable_as(sizes, shape)) return view(t, x, sizes);
  const Tensor copy = clone(t, x);
  return view_op(
      t,
      copy,
      sizes.as_contiguous(),
      "_unsafe_view",
      [original = x.shape()](Tape& tape, const Tensor& g) { return reshape(tape, g, original); });
}

Tensor transpose(Tape& t, const Tensor& x, int a, int b) {
  return view_op(
      t, x, x.shape().transposed(a, b), "transpose", [a, b](Tape& tape, const Tensor& g) {
        return transpose(tape, g, a, b);
      });
}

Tensor unsqueeze(Tape& t, const Tensor& x, int d) {
  return view_op(t, x, x.shape().unsqueezed(d), "unsqueeze", [d](Tape& tape, const Tensor& g) {
    return tape.alias(g, g.shape().without(d), "squeeze");
  });
}

Tensor expand(Tape& t, const Tensor& x, const Shape& sizes) {
  return view_op(t,
                 x,
                 x.shape().expanded(sizes),
                 "expand",
                 [shape = x.shape(), dtype = x.dtype()](Tape& tape, const Tensor& g) {
                   return fit_gradient(tape, g, shape, dtype);
                 });
}

namespace {

// slice_backward, select_backward (TensorShape.cpp): zeros of the whole input, then a copy into it.
Tensor padded_gradient(Tape& t, const Tensor& gradient, const Shape& shape, std::string_view name) {
  Tensor whole = t.empty(shape.as_contiguous(), gradient.dtype());
  t.launch({.name = name,
            .kind = OpKind::copy,
            .traffic = whole.bytes() + gradient.bytes() * 2,
            .kernels = 2});
  return whole;
}

}  // namespace

Tensor slice(Tape& t, const Tensor& x, int d, std::int64_t size) {
  return view_op(t,
                 x,
                 x.shape().with_size(d, size),
                 "slice",
                 [shape = x.shape()](Tape& tape, const Tensor& g) {
                   return padded_gradient(tape, g, shape, "slice_backward");
                 });
}

Tensor every_second(Tape& t, const Tensor& x, int d) {
  return view_op(
      t, x, x.shape().stepped(d, 2), "slice", [shape = x.shape()](Tape& tape, const Tensor& g) {
        return padded_gradient(tape, g, shape, "slice_backward");
      });
}

Tensor select(Tape& t, const Tensor& x, int d) {
  return view_op(
      t, x, x.shape().without(d), "select", [shape = x.shape()](Tape& tape, const Tensor& g) {
        return padded_gradient(tape, g, shape, "select_backward");
      });
}

std::vector<Tensor> split(Tape& t, const Tensor& x, const std::vector<std::int64_t>& sizes, int d) {
  std::vector<Tensor> parts;
  parts.reserve(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    parts.push_back(t.alias(x, x.shape().with_size(d, sizes[i]), i == 0 ? "split" : ""));
  }
  if (!t.trains({&x})) return parts;
  std::vector<Tensor*> outputs;
  outputs.reserve(parts.size());
  for (Tensor& part : parts) outputs.push_back(&part);
  const auto formula = [shape = x.shape(), dtype = x.dtype(), sizes, d](Backward& b) {
    // split_with_sizes_backward: zeros for the parts without a gradient, then one cat.
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (b.gradient(i).defined()) {
        gradients.push_back(b.gradient(i));
        continue;
      }
      Tensor zeros = b.tape.empty(shape.with_size(d, sizes[i]).as_contiguous(), dtype);
      b.tape.launch({.name = "zeros", .kind = OpKind::fill, .traffic = zeros.bytes()});
      gradients.push_back(std::move(zeros));
    }
    std::vector<const Tensor*> inputs;
    inputs.reserve(gradients.size());
    for (const Tensor& gradient : gradients) inputs.push_back(&gradient);
    b.give(0, cat(b.tape, inputs, d));
  };
  t.record(outputs, {&x}, formula);
  return parts;
}

Tensor clone(Tape& t, const Tensor& x) {
  Tensor out = copy_kernel(t, x, x.shape().as_contiguous(), x.dtype(), "clone");
  if (t.trains({&x})) t.record({&out}, {&x}, [](Backward& b) { b.give(0, b.gradient()); });
  return out;
}

Tensor contiguous(Tape& t, const Tensor& x) { return x.shape().contiguous() ? x : clone(t, x); }

namespace {

Tensor converted(Tape& t, const Tensor& x, const Shape& shape, DType dtype) {
  Tensor out = copy_kernel(t, x, shape, dtype, "_to_copy");
  if (t.trains({&x})) {
    t.record({&out}, {&x}, [original = x.dtype()](Backward& b) {
      b.give(0, to(b.tape, b.gradient(), original));
    });
  }
  return out;
}

}  // namespace

Tensor to(Tape& t, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return converted(t, x, x.shape().as_dense(), dtype);
}

Tensor to_contiguous(Tape& t, const Tensor& x, DType dtype) {
  return converted(t, x, x.shape().as_contiguous(), dtype);
}

Tensor cat(Tape& t, const std::vector<const Tensor*>& parts, int d) {
  std::int64_t size = 0;
  std::vector<std::int64_t> sizes;
  std::vector<DType> dtypes;
  DType dtype = parts.front()->dtype();
  bool any = false;
  for (const Tensor* part : parts) {
    size += part->size(d);
    sizes.push_back(part->size(d));
    dtypes.push_back(part->dtype());
    if (width(part->dtype()) > width(dtype)) dtype = part->dtype();  // result_type
    any = any || t.trains({part});
  }
  Tensor out = t.empty(parts.front()->shape().with_size(d, size).as_contiguous(), dtype);
  t.launch({.name = "cat", .kind = OpKind::copy, .traffic = out.bytes() * 2});
  if (!any) return out;
  t.record({&out}, parts, [sizes, dtypes, d](Backward& b) {
    // Views of the gradient (cat_tensors_backward: narrow), each in its part's dtype.
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (!b.needs(i)) continue;
      const Tensor part =
          b.tape.alias(b.gradient(), b.gradient().shape().with_size(d, sizes[i]), "slice");
      b.give(i, to(b.tape, part, dtypes[i]));
    }
  });
  return out;
}

namespace {

// CopySlices::apply: a copy of the whole gradient, and one of the slice; `base`: the slice of the
// first is filled with zeros for who wrote the tensor before.
struct SliceGradients {
  Tensor whole, slice;
};
SliceGradients slice_gradients(Backward& b, const Shape& part, bool base) {
  Tape& t = b.tape;
  const Tensor& gradient = b.gradient();
  SliceGradients made;
  made.whole =
      copy_kernel(t, gradient, gradient.shape().as_contiguous(), gradient.dtype(), "copy_");
  made.slice = t.empty(part.as_contiguous(), gradient.dtype());
  t.launch({.name = "clone", .kind = OpKind::copy, .traffic = made.slice.bytes() * 2});
  if (!base) return made;
  const Tensor zeros = t.empty(part.as_contiguous(), gradient.dtype());
  t.launch({.name = "zeros", .kind = OpKind::fill, .traffic = zeros.bytes()});
  t.launch({.name = "copy_", .kind = OpKind::copy, .traffic = zeros.bytes() * 2});
  return made;
}

}  // namespace

Tensor write_slice(Tape& t, const Tensor& whole, const Tensor& part) {
  t.launch({.name = "copy_", .kind = OpKind::copy, .traffic = part.bytes() * 2});
  Tensor written = t.alias(whole, whole.shape(), "");
  if (!t.trains({&whole, &part})) return written;
  t.record({&written}, {&whole, &part}, [shape = part.shape()](Backward& b) {
    SliceGradients made = slice_gradients(b, shape, b.needs(0));
    if (b.needs(1)) b.give(1, std::move(made.slice));
    if (b.needs(0)) b.give(0, std::move(made.whole));
  });
  return written;
}

namespace {

// Does a tensor of these sizes keep the last dimensions of `whole`, and sum up all before them?
bool keeps_last_dimensions(const Shape& kept, const Shape& whole) {
  bool keeps = false;
  for (int d = 0; d < kept.rank(); ++d) {
    const int from_end = d - kept.rank();
    const bool same = kept.size(d) == whole.size(from_end);
    if (keeps && !same) return false;
    keeps = keeps || (same && kept.size(d) > 1);
    if (!keeps && kept.size(d) > 1) return false;
  }
  return keeps;
}

// What the kernel that sums rows takes beside its result while it runs; undefined: nothing.
Tensor row_sum_buffer_of(Tape& t, const Tensor& gradient, const Shape& kept) {
  if (!gradient.shape().contiguous() || !keeps_last_dimensions(kept, gradient.shape())) return {};
  const std::int64_t columns = kept.numel().count();
  const std::int64_t rows = gradient.numel().count() / columns;
  const Bytes bytes = row_sum_buffer(t.reduction_gpu(), rows, columns, gradient.dtype());
  if (bytes == Bytes::zero()) return {};
  return t.empty(Shape{bytes.count()}, DType::uint8, MemoryCategory::temporaries);
}

}  // namespace

Tensor fit_gradient(Tape& t, const Tensor& gradient, const Shape& shape, DType dtype) {
  Tensor result = gradient;
  if (!gradient.shape().same_sizes(shape)) {
    result = t.empty(shape.as_contiguous(), gradient.dtype());
    const Tensor buffer = row_sum_buffer_of(t, gradient, shape);
    t.launch({.name = "sum",
              .kind = OpKind::reduction,
              .traffic = distinct_bytes(gradient) + result.bytes()});
  }
  return to(t, result, dtype);
}

}  // namespace zeroplan::aten
