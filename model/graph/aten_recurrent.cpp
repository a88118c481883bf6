#include "model/graph/aten_recurrent.hpp"

#include <string>
#include <utility>
#include <vector>

namespace zeroplan::aten {

namespace {

Tensor pointwise(Tape& t, std::string_view name, const Tensor& x, const Shape& shape) {
  Tensor out = t.empty(shape, x.dtype());
  t.launch({.name = name, .traffic = distinct_bytes(x) + out.bytes()});
  return out;
}

Tensor product_of(Tape& t, std::string_view name, const Tensor& gradient, const Tensor& saved) {
  Tensor out = t.empty(gradient.shape().as_dense(), gradient.dtype());
  t.launch({.name = name, .traffic = gradient.bytes() + saved.bytes() + out.bytes()});
  return out;
}

}  // namespace

Tensor exp(Tape& t, const Tensor& x) {
  Tensor out = pointwise(t, "exp", x, x.shape().as_dense());
  if (t.trains({&x})) {
    const Tensor saved = t.save(out);
    t.record({&out}, {&x}, [saved](Backward& b) {
      b.give(0, product_of(b.tape, "mul", b.gradient(), saved));
    });
  }
  return out;
}

Tensor softplus(Tape& t, const Tensor& x) {
  const bool trains = t.trains({&x});
  Tensor saved;
  if (trains) saved = t.save(x);
  Tensor out = pointwise(t, "softplus", x, x.shape().as_dense());
  if (trains) {
    t.record({&out}, {&x}, [saved](Backward& b) {
      b.give(0, product_of(b.tape, "softplus_backward", b.gradient(), saved));
    });
  }
  return out;
}

// cumsum_backward: grad.flip(dim).cumsum(dim).flip(dim)
Tensor cumsum_last(Tape& t, const Tensor& x) {
  Tensor out = pointwise(t, "cumsum", x, x.shape().as_contiguous());
  if (t.trains({&x})) {
    t.record({&out}, {&x}, [](Backward& b) {
      Tensor g = pointwise(b.tape, "flip", b.gradient(), b.gradient().shape().as_contiguous());
      g = pointwise(b.tape, "cumsum", g, g.shape());
      b.give(0, pointwise(b.tape, "flip", g, g.shape()));
    });
  }
  return out;
}

// constant_pad_nd at the end of a dimension, a copy even where nothing is missing
// (PadNd.cpp: all pads <= 0 are a narrow and a clone); its gradient is the same with less.
Tensor pad_end(Tape& t, const Tensor& x, int d, std::int64_t missing) {
  const Shape padded = x.shape().with_size(d, x.size(d) + missing);
  Tensor out =
      pointwise(t, "constant_pad_nd", x, missing > 0 ? padded.as_contiguous() : padded.as_dense());
  if (t.trains({&x})) {
    t.record({&out}, {&x}, [shape = x.shape()](Backward& b) {
      b.give(0, pointwise(b.tape, "constant_pad_nd", b.gradient(), shape.as_contiguous()));
    });
  }
  return out;
}

// x.repeat_interleave(count, dim=2) of heads: unsqueeze, expand, clone, flatten.
Tensor repeat_heads(Tape& t, const Tensor& x, std::int64_t count) {
  const Tensor apart = unsqueeze(t, x, 3);
  const Tensor wide = expand(t, apart, Shape{x.size(0), x.size(1), x.size(2), count, x.size(3)});
  const Tensor copy = clone(t, wide);
  return view(t, copy, Shape{x.size(0), x.size(1), x.size(2) * count, x.size(3)});
}

namespace {

// x with the dimensions that `letters` name in the order of `wanted`.
Tensor permuted(Tape& t, Tensor x, std::string letters, std::string_view wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::size_t at = letters.find(wanted[i]);
    if (at == i) continue;
    x = transpose(t, x, static_cast<int>(i), static_cast<int>(at));
    std::swap(letters[i], letters[at]);
  }
  return x;
}

std::vector<std::int64_t> sizes_of(const Tensor& x,
                                   std::string_view letters,
                                   std::string_view wanted) {
  std::vector<std::int64_t> sizes;
  for (const char letter : wanted) sizes.push_back(x.size(static_cast<int>(letters.find(letter))));
  return sizes;
}

std::int64_t count_of(const std::vector<std::int64_t>& sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count = detail::checked_product(count, size);
  return count;
}

}  // namespace

Tensor einsum(Tape& t,
              const Tensor& a,
              std::string_view of_a,
              const Tensor& b,
              std::string_view of_b,
              std::string_view out) {
  std::string batch, left, right, summed;
  for (const char letter : out) {
    const bool in_a = of_a.find(letter) != of_a.npos, in_b = of_b.find(letter) != of_b.npos;
    (in_a && in_b ? batch : in_a ? left : right).push_back(letter);
  }
  for (const char letter : of_a) {
    if (out.find(letter) == out.npos) summed.push_back(letter);
  }
  std::vector<std::int64_t> apart = sizes_of(a, of_a, batch);
  const std::vector<std::int64_t> rows = sizes_of(a, of_a, left),
                                  columns = sizes_of(b, of_b, right);
  const std::int64_t count = count_of(apart), inner = count_of(sizes_of(a, of_a, summed));
  Tensor x = permuted(t, a, std::string(of_a), batch + left + summed);
  x = reshape(t, x, Shape{count, count_of(rows), inner});
  Tensor y = permuted(t, b, std::string(of_b), batch + summed + right);
  y = reshape(t, y, Shape{count, inner, count_of(columns)});
  Tensor result = bmm(t, x, y);
  apart.insert(apart.end(), rows.begin(), rows.end());
  apart.insert(apart.end(), columns.begin(), columns.end());
  result = view(t, result, Shape(apart));
  return permuted(t, result, batch + left + right, out);
}

namespace {

// linalg_solve_triangular of contiguous matrices: one new tensor (BatchLinearAlgebra.cpp), and the
// arrays of pointers of cublas.
Tensor solve_kernel(Tape& t, const Tensor& matrix, const Tensor& right) {
  Tensor out = t.empty(right.shape().as_contiguous(), right.dtype());
  const std::int64_t m = matrix.size(-1), n = right.size(-1);
  const std::int64_t batch = matrix.numel().count() / (m * m);
  // Half of a product's work: the other half of the matrix is zero.
  t.launch({.name = "linalg_solve_triangular",
            .kind = OpKind::matmul,
            .traffic = matrix.bytes() + right.bytes() * 2,
            .kernels = 2},
           MatrixProduct{batch, m, n, (m + 1) / 2, right.dtype()});
  return out;
}

}  // namespace

Tensor solve_triangular(Tape& t, const Tensor& matrix, const Tensor& right) {
  const bool trains = t.trains({&matrix, &right});
  Tensor saved_matrix, saved_out;
  if (trains) saved_matrix = t.save(matrix);
  Tensor out = solve_kernel(t, matrix, right);
  if (!trains) return out;
  saved_out = t.save(out);
  t.record({&out}, {&matrix, &right}, [saved_matrix, saved_out](Backward& b) {
    // linalg_solve_triangular_backward: G_B = A^-H G; G_A = tril(-G_B X^H, -1)
    Tape& tape = b.tape;
    Tensor right_gradient = solve_kernel(tape, saved_matrix, b.gradient());
    if (b.needs(0)) {
      const Shape shape = saved_matrix.shape().as_contiguous();
      const std::int64_t m = shape.size(-2), k = right_gradient.size(-1);
      const std::int64_t batch = shape.numel().count() / (m * m);
      Tensor gradient = tape.empty(shape, saved_matrix.dtype());
      tape.launch({.name = "bmm",
                   .kind = OpKind::matmul,
                   .traffic = right_gradient.bytes() * 2 + gradient.bytes()},
                  MatrixProduct{batch, m, m, k, saved_matrix.dtype()});
      gradient = pointwise(tape, "neg", gradient, shape);
      b.give(0, pointwise(tape, "tril", gradient, shape));
    }
    if (b.needs(1)) b.give(1, std::move(right_gradient));
  });
  return out;
}

}  // namespace zeroplan::aten
