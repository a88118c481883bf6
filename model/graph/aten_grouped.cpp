// Products of rows that are grouped by their expert, and what sorts the rows into groups.
#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "model/graph/aten.hpp"

namespace zeroplan::aten {

namespace {

// Each group's rows by its own matrix; the rows are taken to be spread evenly over the groups.
void launch_grouped(Tape& t,
                    GroupedProducts products,
                    const MatrixProduct& product,
                    Bytes traffic) {
  if (products == GroupedProducts::one_kernel) {
    t.launch({.name = "_grouped_mm",
              .kind = OpKind::matmul,
              .traffic = traffic,
              .library = Library::own},
             product);
    return;
  }
  const std::int64_t groups = product.batch;
  t.launch(
      {.name = "offsets to the host", .kind = OpKind::host_copy, .traffic = Bytes::of(4 * groups)});
  t.launch({.name = "mm of each group",
            .kind = OpKind::matmul,
            .traffic = traffic,
            .kernels = static_cast<std::int32_t>(groups)},
           product);
}

std::int64_t rows_per_group(const Tensor& rows, std::int64_t groups) {
  return std::max<std::int64_t>(1, ceil_div(rows.size(0), groups));
}

// rows (S, in) by weight (groups, in, out).
Tensor by_group(Tape& t, GroupedProducts products, const Tensor& rows, const Tensor& weight) {
  const std::int64_t groups = weight.size(0);
  const std::int64_t out_features = weight.size(2);
  Tensor out = t.empty(Shape{rows.size(0), out_features}, rows.dtype());
  launch_grouped(t,
                 products,
                 {groups, rows_per_group(rows, groups), out_features, weight.size(1), rows.dtype()},
                 rows.bytes() + weight.bytes() + out.bytes());
  return out;
}

// The gradient of a weight: each group's rows of `left`, transposed, by its rows of `right`. For a
// weight (groups, out, in) these are the gradient and the input, for (groups, in, out) the reverse.
Tensor weight_gradient(Tape& t,
                       GroupedProducts products,
                       const Tensor& left,
                       const Tensor& right,
                       std::int64_t groups) {
  const Tensor transposed = transpose(t, left, 0, 1);
  Tensor out = t.empty(Shape{groups, left.size(1), right.size(1)}, right.dtype());
  launch_grouped(
      t,
      products,
      {groups, left.size(1), right.size(1), rows_per_group(right, groups), right.dtype()},
      left.bytes() + right.bytes() + out.bytes());
  return out;
}

}  // namespace

Sorted sort(Tape& t, std::int64_t count) {
  Sorted sorted{t.empty(Shape{count}, DType::int64), t.empty(Shape{count}, DType::int64)};
  // keys and positions beside those that are returned (Sort.cpp: segmented_sort_pairs)
  const Tensor scratch = t.empty(Shape{2 * count}, DType::int64, MemoryCategory::temporaries);
  t.launch({.name = "sort", .kind = OpKind::scatter, .traffic = scratch.bytes() * 4, .kernels = 4});
  return sorted;
}

Tensor masked_fill_in_place(Tape& t, const Tensor& x, const Tensor& mask) {
  const bool trains = t.trains({&x});
  Tensor saved;
  if (trains) saved = t.save(mask);
  t.launch({.name = "masked_fill_", .traffic = x.bytes() * 2 + mask.bytes()});
  Tensor out = t.alias(x, x.shape(), "");
  if (trains) {
    t.record({&out}, {&x}, [saved](Backward& b) {
      b.give(0, masked_fill(b.tape, b.gradient(), saved));
    });
  }
  return out;
}

Tensor sum(Tape& t, const Tensor& x, int d) {
  const Shape& shape = x.shape();
  Tensor out = t.empty(shape.without(d).as_contiguous(), x.dtype());
  t.launch({.name = "sum", .kind = OpKind::reduction, .traffic = x.bytes() + out.bytes()});
  if (t.trains({&x})) {
    t.record({&out}, {&x}, [shape, d](Backward& b) {
      const Tensor one =
          b.tape.alias(b.gradient(), b.gradient().shape().unsqueezed(d), "unsqueeze");
      b.give(0, b.tape.alias(one, one.shape().expanded(shape), "expand"));
    });
  }
  return out;
}

// derivatives.yaml _grouped_mm: keeps rows, weight and offsets; the weight's gradient comes first
// and has the layout of the weight (_grouped_mm_mat2_backward, FunctionsManual.cpp).
Tensor grouped_mm(Tape& t,
                  const Tensor& rows,
                  const Tensor& weight,
                  const Tensor& offsets,
                  GroupedProducts products,
                  StackLayout layout) {
  ZP_CHECK(rows.shape().rank() == 2 && weight.shape().rank() == 3, "grouped_mm: rows by a stack");
  const bool trains = t.trains({&rows, &weight});
  Tensor saved_rows, saved_offsets;
  if (trains) saved_offsets = t.save(offsets);
  if (trains && weight.requires_grad()) saved_rows = t.save(rows);
  const bool out_in = layout == StackLayout::out_in;
  const Tensor across = transpose(t, weight.detached(), 1, 2);
  Tensor out = by_group(t, products, rows, out_in ? across : weight.detached());
  if (!trains) return out;
  t.record({&out},
           {&rows, &weight},
           [saved_rows, saved_offsets, products, out_in, kept = weight.detached()](Backward& b) {
             Tape& tape = b.tape;
             if (b.needs(1)) {
               const Tensor& left = out_in ? b.gradient() : saved_rows;
               const Tensor& right = out_in ? saved_rows : b.gradient();
               b.give(1, weight_gradient(tape, products, left, right, kept.size(0)));
             }
             if (!b.needs(0)) return;
             const Tensor matrices = out_in ? kept : transpose(tape, kept, 1, 2);
             b.give(0, by_group(tape, products, b.gradient(), matrices));
           });
  return out;
}

}  // namespace zeroplan::aten
