// Matrix products, embeddings and fused attention.
#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "model/graph/aten.hpp"
#include "model/graph/aten_autocast.hpp"
#include "model/graph/cublas_workspace.hpp"

namespace zeroplan::aten {

namespace {

// `vector`: what cublasLt adds in the same kernel.
Tensor product_kernel(Tape& t,
                      std::string_view name,
                      const Tensor& a,
                      const Tensor& b,
                      Bytes extra,
                      bool vector = false) {
  const bool batched = a.shape().rank() == 3;
  const std::int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  ZP_CHECK(b.size(-2) == k, "matrix product: inner sizes do not match");
  Tensor out = t.empty(batched ? Shape{a.size(0), m, n} : Shape{m, n}, a.dtype());
  const Tensor scratch =
      vector && t.lt_workspace_per_call()
          ? t.empty(Shape{kLtWorkspace}, DType::uint8, MemoryCategory::temporaries)
          : Tensor();
  t.launch({.name = name,
            .kind = OpKind::matmul,
            .traffic = distinct_bytes(a) + distinct_bytes(b) + out.bytes() + extra,
            .library = vector ? Library::cublaslt : Library::cublas},
           MatrixProduct{batched ? a.size(0) : 1, m, n, k, a.dtype()});
  return out;
}

Tensor t_view(Tape& t, const Tensor& x) {
  return t.alias(x, x.shape().transposed(-2, -1), x.shape().rank() == 2 ? "t" : "transpose");
}

// stride(0) == 1 and stride(1) == size(0): mm_mat1_grad and mm_mat2_grad keep such a layout.
bool column_major(const Shape& shape) {
  return shape.stride(0) == 1 && shape.stride(1) == shape.size(0);
}

Tensor gradient_of_left(Tape& t, const Tensor& gradient, const Tensor& right, const Shape& left) {
  if (!column_major(left)) return product_kernel(t, "mm", gradient, t_view(t, right), {});
  const Tensor transposed = product_kernel(t, "mm", right, t_view(t, gradient), {});
  return t_view(t, transposed);
}

Tensor gradient_of_right(Tape& t, const Tensor& gradient, const Tensor& left, const Shape& right) {
  if (!column_major(right)) return product_kernel(t, "mm", t_view(t, left), gradient, {});
  const Tensor transposed = product_kernel(t, "mm", t_view(t, gradient), left, {});
  return t_view(t, transposed);
}

struct SavedOperands {
  Tensor left, right;
};

SavedOperands save_operands(Tape& t, const Tensor& a, const Tensor& b) {
  SavedOperands saved;
  if (t.trains({&b})) saved.left = t.save(a);
  if (t.trains({&a})) saved.right = t.save(b);
  return saved;
}

void bmm_gradients(
    Backward& b, std::size_t left, std::size_t right, const SavedOperands& saved, bool scaled) {
  Tape& t = b.tape;
  // `mat2` before `self`, as in the generated BmmBackward0.
  if (b.needs(right)) {
    Tensor gradient = product_kernel(t, "bmm", t_view(t, saved.left), b.gradient(), {});
    if (scaled) gradient = scale(t, gradient);
    b.give(right, std::move(gradient));
  }
  if (b.needs(left)) {
    Tensor gradient = product_kernel(t, "bmm", b.gradient(), t_view(t, saved.right), {});
    if (scaled) gradient = scale(t, gradient);
    b.give(left, std::move(gradient));
  }
}

}  // namespace

Tensor mm(Tape& t, const Tensor& left, const Tensor& right) {
  const Tensor a = autocast_lower(t, left);
  const Tensor b = autocast_lower(t, right);
  const SavedOperands saved = save_operands(t, a, b);
  Tensor out = product_kernel(t, "mm", a, b, {});
  if (t.trains({&a, &b})) {
    t.record({&out}, {&a, &b}, [saved, as = a.shape(), bs = b.shape()](Backward& bw) {
      if (bw.needs(1)) bw.give(1, gradient_of_right(bw.tape, bw.gradient(), saved.left, bs));
      if (bw.needs(0)) bw.give(0, gradient_of_left(bw.tape, bw.gradient(), saved.right, as));
    });
  }
  return out;
}

Tensor addmm(Tape& t, const Tensor& addend, const Tensor& left, const Tensor& right) {
  const Tensor bias = autocast_lower(t, addend);
  const Tensor a = autocast_lower(t, left);
  const Tensor b = autocast_lower(t, right);
  const SavedOperands saved = save_operands(t, a, b);
  // native/cuda/Blas.cpp: a one-dimensional bias goes through cublasLt with its workspace.
  Tensor out = product_kernel(t, "addmm", a, b, bias.bytes(), bias.shape().rank() == 1);
  if (t.trains({&bias, &a, &b})) {
    t.record({&out},
             {&bias, &a, &b},
             [saved, as = a.shape(), bs = b.shape(), bias_shape = bias.shape()](Backward& bw) {
               Tape& tape = bw.tape;
               if (bw.needs(1)) {
                 bw.give(1, gradient_of_left(tape, bw.gradient(), saved.right, as));
               }
               if (bw.needs(2)) {
                 bw.give(2, gradient_of_right(tape, bw.gradient(), saved.left, bs));
               }
               if (bw.needs(0)) {
                 bw.give(0, fit_gradient(tape, bw.gradient(), bias_shape, bw.gradient().dtype()));
               }
             });
  }
  return out;
}

Tensor bmm(Tape& t, const Tensor& left, const Tensor& right) {
  const Tensor a = autocast_lower(t, left);
  const Tensor b = autocast_lower(t, right);
  const SavedOperands saved = save_operands(t, a, b);
  Tensor out = product_kernel(t, "bmm", a, b, {});
  if (t.trains({&a, &b})) {
    t.record({&out}, {&a, &b}, [saved](Backward& bw) { bmm_gradients(bw, 0, 1, saved, false); });
  }
  return out;
}

Tensor baddbmm(Tape& t, const Tensor& sum, const Tensor& left, const Tensor& right) {
  const Tensor addend = autocast_lower(t, sum);
  const Tensor a = autocast_lower(t, left);
  const Tensor b = autocast_lower(t, right);
  const SavedOperands saved = save_operands(t, a, b);
  Tensor out = product_kernel(t, "baddbmm", a, b, distinct_bytes(addend));
  if (t.trains({&addend, &a, &b})) {
    t.record({&out},
             {&addend, &a, &b},
             [saved, shape = addend.shape(), dtype = addend.dtype()](Backward& bw) {
               if (bw.needs(0)) bw.give(0, fit_gradient(bw.tape, bw.gradient(), shape, dtype));
               // maybe_multiply(grad.bmm(...), alpha) with an alpha that is not 1
               bmm_gradients(bw, 1, 2, saved, true);
             });
  }
  return out;
}

Tensor matmul(Tape& t, const Tensor& left, const Tensor& right) {
  const Tensor a = autocast_lower(t, left);
  const Tensor b = autocast_lower(t, right);
  ZP_CHECK(a.shape().rank() == 4 && b.shape().rank() == 4, "matmul: four dimensions expected");
  // LinearAlgebra.cpp _matmul_impl: expand, reshape to three dimensions (a copy where the heads are
  // a transposed view and b > 1), bmm, _unsafe_view.
  const std::int64_t batch = a.size(0), heads = a.size(1);
  const Tensor a4 = expand(t, a, Shape{batch, heads, a.size(2), a.size(3)});
  const Tensor a3 = reshape(t, a4, Shape{batch * heads, a.size(2), a.size(3)});
  const Tensor b4 = expand(t, b, Shape{batch, heads, b.size(2), b.size(3)});
  const Tensor b3 = reshape(t, b4, Shape{batch * heads, b.size(2), b.size(3)});
  const Tensor out = bmm(t, a3, b3);
  return view(t, out, Shape{batch, heads, a.size(2), b.size(3)});
}

Tensor linear(Tape& t, const Tensor& input, const Tensor& matrix, const Tensor& addend) {
  const Tensor x = autocast_lower(t, input);
  const Tensor weight = autocast_lower(t, matrix);
  const Tensor bias = autocast_lower(t, addend);
  const Tensor transposed = transpose(t, weight, 0, 1);
  const std::int64_t out_features = weight.size(0);
  if (x.shape().rank() == 2) {
    return bias.defined() ? addmm(t, bias, x, transposed) : mm(t, x, transposed);
  }
  ZP_CHECK(x.shape().rank() > 2, "linear: two dimensions or more expected");
  // Linear.cpp _flatten_nd_linear; LinearAlgebra.cpp should_fold.
  const std::int64_t inner = x.size(-1);
  const Tensor rows = reshape(t, x, Shape{x.numel().count() / inner, inner});
  const Tensor out = bias.defined() ? addmm(t, bias, rows, transposed) : mm(t, rows, transposed);
  return view(t, out, x.shape().with_size(-1, out_features).as_contiguous());
}

Tensor zero3_linear(Tape& t, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  // deepspeed/runtime/zero/linear.py LinearFunctionForZeroStage3: saves (input, weight, bias)
  // without a guard, so the input stays even where the weight is frozen; the bias is a second
  // kernel above two dimensions; grad_weight is grad.t() @ input.
  const Shape out_shape = x.shape().with_size(-1, weight.size(0)).as_contiguous();
  const std::int64_t rows = x.numel().count() / x.size(-1);
  const auto flat = [rows](const Tensor& tensor) { return Shape{rows, tensor.size(-1)}; };
  const Tensor x2 = t.alias(x, flat(x), "view");
  Tensor product = product_kernel(t, "mm", x2, t_view(t, weight), {});
  if (bias.defined()) {
    t.launch({.name = "add_", .traffic = product.bytes() * 2 + bias.bytes()});
  }
  Tensor out = t.alias(product, out_shape, "_unsafe_view");
  if (!t.trains({&x, &weight, &bias})) return out;
  // A Python function's tensors are packed when its forward code has returned
  // (python_function.cpp process_outputs): a recomputation that stops early stops behind the
  // product.
  const Tensor saved = t.save(x);
  t.record(
      {&out},
      {&x, &weight, &bias},
      [saved,
       weight_view = weight.detached(),
       rows,
       has_bias = bias.defined(),
       bias_shape = bias.shape()](Backward& b) {
        Tape& tape = b.tape;
        const Tensor gradient = reshape(tape, b.gradient(), Shape{rows, b.gradient().size(-1)});
        const Tensor input = tape.alias(saved, Shape{rows, saved.size(-1)}, "view");
        if (b.needs(0)) {
          const Tensor dx = product_kernel(tape, "mm", gradient, weight_view, {});
          b.give(0, tape.alias(dx, saved.shape().as_contiguous(), "_unsafe_view"));
        }
        if (b.needs(1)) {
          b.give(1, product_kernel(tape, "mm", t_view(tape, gradient), input, {}));
        }
        if (has_bias && b.needs(2)) {
          b.give(2, fit_gradient(tape, gradient, bias_shape, gradient.dtype()));
        }
      });
  return out;
}

namespace {

// embedding_backward_cuda_kernel (EmbeddingBackwardKernel.cu, EmbeddingBackwardKernel L222-318):
// above 3072 indices a sort, segments, and fp32 partial sums of at most one row a segment.
Tensor embedding_gradient(Tape& t,
                          const Tensor& gradient,
                          const Shape& weight,
                          std::int64_t tokens) {
  constexpr std::int64_t kSmall = 3072, kRowsPerSegment = 10;
  Tensor dweight = t.empty(weight, gradient.dtype());
  t.launch({.name = "zeros", .kind = OpKind::fill, .traffic = dweight.bytes()});
  if (tokens <= kSmall) {
    t.launch({.name = "embedding_dense_backward",
              .kind = OpKind::scatter,
              .traffic = gradient.bytes() * 2});
    return dweight;
  }
  const Tensor sorted = t.empty(Shape{2 * tokens}, DType::int64, MemoryCategory::temporaries);
  const std::int64_t distinct = std::min(tokens, weight.size(0));
  const std::int64_t segments = tokens / kRowsPerSegment + distinct;
  const Tensor offsets = t.empty(Shape{tokens + 3 * distinct + tokens / kRowsPerSegment},
                                 DType::int64,
                                 MemoryCategory::temporaries);
  const Tensor partial =
      t.empty(Shape{segments, weight.size(1)}, DType::fp32, MemoryCategory::temporaries);
  t.launch({.name = "embedding_dense_backward",
            .kind = OpKind::scatter,
            .traffic = gradient.bytes() + partial.bytes() * 2 + gradient.bytes(),
            .kernels = 10});
  return dweight;
}

Tensor embedding_by(Tape& t, const Shape& indices, const Tensor& index, const Tensor& weight) {
  const std::int64_t hidden = weight.size(1);
  const std::int64_t tokens = indices.numel().count();
  const Shape shape = indices.rank() == 1 ? Shape{indices.size(0), hidden}
                                          : Shape{indices.size(0), indices.size(1), hidden};
  Tensor out = t.empty(shape, weight.dtype());
  t.launch({.name = "embedding",
            .kind = OpKind::gather,
            .traffic = out.bytes() * 2 + Bytes::of(8 * tokens)});
  if (t.trains({&weight})) {
    const Tensor saved = index.defined() ? t.save(index) : Tensor();
    t.record({&out}, {&weight}, [saved, shape = weight.shape(), tokens](Backward& b) {
      b.give(0, embedding_gradient(b.tape, contiguous(b.tape, b.gradient()), shape, tokens));
    });
  }
  return out;
}

}  // namespace

// The token indices are the batch's: they are not counted here.
Tensor embedding(Tape& t, const Shape& indices, const Tensor& weight) {
  return embedding_by(t, indices, Tensor(), weight);
}

Tensor embedding(Tape& t, const Tensor& indices, const Tensor& weight) {
  return embedding_by(t, indices.shape(), indices, weight);
}

}  // namespace zeroplan::aten
