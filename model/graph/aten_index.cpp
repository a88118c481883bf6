// Reads and writes by index: what routing to experts is made of.
#include <string_view>
#include <utility>

#include "model/graph/aten_recurrent.hpp"

namespace zeroplan::aten {

// index.Tensor: the index tensor is saved; its gradient is index_put_ with accumulation into zeros
// of the whole input (index_backward, FunctionsManual.cpp), sorted by thrust.
Tensor index_rows(Tape& t, const Tensor& x, std::int64_t rows) {
  return index_rows(t, x, t.empty(Shape{rows}, DType::int64));
}

Tensor index_rows(Tape& t, const Tensor& x, const Tensor& index) {
  const std::int64_t rows = index.size(0);
  const std::int64_t columns = x.size(-1);
  const bool trains = t.trains({&x});
  Tensor saved;
  if (trains) saved = t.save(index);
  Tensor out = t.empty(Shape{rows, columns}, x.dtype());
  t.launch({.name = "index", .kind = OpKind::gather, .traffic = out.bytes() * 2 + index.bytes()});
  if (trains) {
    t.record({&out}, {&x}, [saved, shape = x.shape(), rows](Backward& b) {
      Tape& tape = b.tape;
      Tensor whole = tape.empty(shape.as_contiguous(), b.gradient().dtype());
      tape.launch({.name = "new_zeros", .kind = OpKind::fill, .traffic = whole.bytes()});
      // linear index, sorted index and permutation, int64 each
      const Tensor sorted = tape.empty(Shape{3 * rows}, DType::int64, MemoryCategory::temporaries);
      tape.launch({.name = "_index_put_impl_",
                   .kind = OpKind::scatter,
                   .traffic = b.gradient().bytes() * 3 + sorted.bytes() * 2,
                   .kernels = 6});
      b.give(0, std::move(whole));
    });
  }
  return out;
}

// As index_rows; the index has one entry, so sorting it needs nothing to speak of.
Tensor index_one(Tape& t, const Tensor& x, int d) {
  const bool trains = t.trains({&x});
  const Tensor index = t.empty(Shape{1}, DType::int64);
  t.launch({.name = "_to_copy", .kind = OpKind::copy, .traffic = index.bytes()});
  Tensor saved;
  if (trains) saved = t.save(index);
  Tensor out = t.empty(x.shape().with_size(d, 1).as_contiguous(), x.dtype());
  t.launch({.name = "index", .kind = OpKind::gather, .traffic = out.bytes() * 2});
  if (trains) {
    t.record({&out}, {&x}, [saved, shape = x.shape()](Backward& b) {
      Tensor whole = b.tape.empty(shape.as_contiguous(), b.gradient().dtype());
      b.tape.launch({.name = "new_zeros", .kind = OpKind::fill, .traffic = whole.bytes()});
      b.tape.launch({.name = "_index_put_impl_",
                     .kind = OpKind::scatter,
                     .traffic = b.gradient().bytes() * 3,
                     .kernels = 3});
      b.give(0, std::move(whole));
    });
  }
  return out;
}

// A copy of x; the mask as large as x, and the places of its elements as a running sum
// (masked_scatter__cuda, launch_masked_scatter_kernel). The source's gradient is what the mask
// selects, by a number for each dimension of every element (masked_scatter_backward).
Tensor masked_scatter(Tape& t, const Tensor& x, const Tensor& mask, const Tensor& source) {
  const bool trains = t.trains({&x, &source});
  Tensor saved;
  if (trains) saved = t.save(mask);
  Tensor out = clone(t, x.detached());
  const Shape whole = x.shape().as_contiguous();
  {
    const Tensor sums = t.empty(whole, DType::int64, MemoryCategory::temporaries);
    Tensor spread;
    if (!mask.shape().same_sizes(whole))
      spread = t.empty(whole, DType::boolean, MemoryCategory::temporaries);
    t.launch({.name = "masked_scatter_",
              .kind = OpKind::scatter,
              .traffic = source.bytes() + sums.bytes() * 2 + out.bytes(),
              .kernels = 3});
  }
  if (!trains) return out;
  t.record({&out},
           {&x, &source},
           [saved, of_source = source.shape().as_contiguous(), rank = whole.rank()](Backward& b) {
             if (b.needs(0)) {
               Tensor kept =
                   b.tape.empty(b.gradient().shape().as_contiguous(), b.gradient().dtype());
               b.tape.launch({.name = "masked_fill", .traffic = kept.bytes() * 2});
               b.give(0, std::move(kept));
             }
             if (!b.needs(1)) return;
             const std::int64_t count = of_source.numel().count();
             const Tensor places =
                 b.tape.empty(Shape{rank, count}, DType::int64, MemoryCategory::temporaries);
             b.tape.launch({.name = "nonzero", .kind = OpKind::gather, .traffic = places.bytes()});
             Tensor selected = b.tape.empty(of_source, b.gradient().dtype());
             b.tape.launch({.name = "index",
                            .kind = OpKind::gather,
                            .traffic = places.bytes() + selected.bytes() * 2});
             b.give(1, std::move(selected));
           });
  return out;
}

Tensor index_add(Tape& t, const Tensor& target, const Tensor& x) {
  const bool trains = t.trains({&target, &x});
  t.launch({.name = "index_add_", .kind = OpKind::scatter, .traffic = x.bytes() * 3});
  Tensor out = t.alias(target, target.shape(), "");
  if (trains) {
    // derivatives.yaml: grad.index_select(dim, index).expand_as(source), for which it keeps both
    const Tensor source = t.save(x);
    t.record({&out}, {&target, &x}, [source](Backward& b) {
      if (b.needs(0)) b.give(0, b.gradient());
      if (!b.needs(1)) return;
      Tensor gradient = b.tape.empty(source.shape().as_contiguous(), source.dtype());
      b.tape.launch(
          {.name = "index_select", .kind = OpKind::gather, .traffic = gradient.bytes() * 2});
      b.give(1, std::move(gradient));
    });
  }
  return out;
}

Selected select_last(Tape& t, const Tensor& x, const Shape& shape, std::string_view name) {
  Tensor values = t.empty(shape, x.dtype());
  Tensor indices = t.empty(shape, DType::int64);
  t.launch({.name = name, .kind = OpKind::reduction, .traffic = x.bytes() + values.bytes() * 3});
  if (t.trains({&x})) {
    const Tensor saved = t.save(indices);
    t.record({&values}, {&x}, [saved, whole = x.shape()](Backward& b) {
      // value_selecting_reduction_backward: zeros, then a scatter
      Tensor gradient = b.tape.empty(whole.as_contiguous(), b.gradient().dtype());
      b.tape.launch({.name = "scatter",
                     .kind = OpKind::scatter,
                     .traffic = gradient.bytes() + saved.bytes() * 2,
                     .kernels = 2});
      b.give(0, std::move(gradient));
    });
  }
  return {std::move(values), std::move(indices)};
}

Tensor topk(Tape& t, const Tensor& x, std::int64_t k) {
  return select_last(t, x, x.shape().with_size(-1, k).as_contiguous(), "topk").values;
}

}  // namespace zeroplan::aten
