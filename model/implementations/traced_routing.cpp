// Operations of attention by flash-attn, of caches, and of tokens that go to experts.
#include <utility>

#include "model/implementations/hf_moe.hpp"
#include "model/implementations/traced_call.hpp"

namespace zeroplan {
namespace {

// Two dimensions the other way round, which costs nothing: no operation of the program.
Tensor turned(Tape& t, const Tensor& x, int a, int b) {
  Tensor out = t.alias(x, x.shape().transposed(a, b), "");
  if (t.trains({&x})) {
    t.record({&out}, {&x}, [a, b](Backward& back) {
      const Tensor& g = back.gradient();
      back.give(0, back.tape.alias(g, g.shape().transposed(a, b), ""));
    });
  }
  return out;
}

}  // namespace

// flash-attn's, whose tensors are (b, s, heads, d): any strides, grouped heads.
void play_flash_attention(TracedOperationCall& call) {
  aten::Sdpa options;
  options.causal = call.e.causal;
  options.dropout = call.e.p;
  options.deterministic = call.v.c.options.deterministic;
  const Tensor query = turned(call.t, call.x(0), 1, 2);
  const Tensor key = turned(call.t, call.x(1), 1, 2), value = turned(call.t, call.x(2), 1, 2);
  const auto attend = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return turned(
        call.t, aten::scaled_dot_product_attention(call.t, q, k, v, Tensor(), options), 1, 2);
  };
  call.give(
      hf::on_all_tokens(call.t, call.v.c.options.sequence_parallel, query, key, value, attend));
}

// x[rows], of rows or of single numbers.
void play_index(TracedOperationCall& call) {
  const Tensor& x = call.x();
  const int rank = x.shape().rank();
  const bool rows = call.in.size() == 2 && (rank == 1 || rank == 2) && call.x(1).defined() &&
                    call.x(1).shape().rank() == 1 && call.x(1).dtype() == DType::int64 &&
                    call.shape().rank() == rank && (rank == 1 || call.shape().size(1) == x.size(1));
  if (!rows) return play_general(call);
  if (rank == 2) return call.give(aten::index_rows(call.t, x, call.x(1)));
  const Tensor column = aten::view(call.t, x, Shape{x.size(0), 1});
  call.give(aten::view(call.t, aten::index_rows(call.t, column, call.x(1)), call.shape()));
}

// Numbers of rows by their groups; others are sorted as the general rule has it.
void play_sort(TracedOperationCall& call) {
  const bool numbers = call.x().shape().rank() == 1 && call.x().dtype() == DType::int64;
  if (!numbers || call.e.out.size() != 2) return play_general(call);
  aten::Sorted sorted = aten::sort(call.t, call.x().size(0));
  call.v.at(call.e.out[0]) = std::move(sorted.values);
  call.v.at(call.e.out[1]) = std::move(sorted.indices);
}

// Cache.update: keys and values are written into the cache; without one both go on as they are. Of
// a class that returns its pair they stay as they are.
void play_update_cache(TracedOperationCall& call) {
  Tensor key = call.x(0), value = call.x(1);
  if (call.e.out.empty()) return hf::keep_pair(call.t, call.v.c, key, value);
  hf::update_cache(call.t, call.v.c, key, value);
  call.v.at(call.e.out.at(0)) = std::move(key);
  call.v.at(call.e.out.at(1)) = std::move(value);
}

// Rows of each group by its matrix of a stack (groups, in, out), which may be one of (groups, out,
// in) the other way round.
void play_grouped_product(TracedOperationCall& call) {
  const Tensor& weight = call.x(1);
  if (call.in.size() < 3 || call.x().shape().rank() != 2 || weight.shape().rank() != 3) {
    return play_general(call);
  }
  const aten::GroupedProducts products = hf::products_on(call.v.c);
  const bool across = weight.shape().stride(1) < weight.shape().stride(2);
  const Tensor stack = across ? turned(call.t, weight, 1, 2) : weight;
  call.give(aten::grouped_mm(call.t,
                             call.x(),
                             stack,
                             call.x(2),
                             products,
                             across ? aten::StackLayout::out_in : aten::StackLayout::in_out));
}

void play_topk(TracedOperationCall& call) {
  aten::Selected selected = aten::select_last(call.t, call.x(), call.shape(0), call.e.name);
  call.v.at(call.e.out.at(0)) = std::move(selected.values);
  call.v.at(call.e.out.at(1)) = std::move(selected.indices);
}

}  // namespace zeroplan
