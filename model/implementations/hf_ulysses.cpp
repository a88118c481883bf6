// DeepSpeed-Ulysses around the attention of a Hugging Face class: before it, an all-to-all turns
// s/n tokens of all heads into all s tokens of 1/n of the heads, after it another turns the result
// back. n ranks share the sequence; with fewer key heads than ranks each is repeated first.
// Source: deepspeed/runtime/sequence_parallel/ulysses_sp.py UlyssesSPAttentionHF (0.17 and later),
// sequence/layer.py _DimZeroAllToAll. Left out: the all-gather of position ids, 8 bytes a token.
// Checked by tests/unit/model/implementations/graph_ulysses_test.cpp.
#include <algorithm>
#include <utility>

#include "model/implementations/hf_common.hpp"

namespace zeroplan::hf {

namespace {

Tensor exchanged(Tape& t, const Tensor& x) {
  Tensor out = t.empty(x.shape().as_contiguous(), x.dtype());
  t.launch({.name = "all_to_all", .kind = OpKind::exchange, .traffic = out.bytes()});
  return out;
}

// _DimZeroAllToAll: its backward is the same exchange of the gradient.
Tensor all_to_all(Tape& t, const Tensor& x) {
  const Tensor in = aten::contiguous(t, x);
  Tensor out = exchanged(t, in);
  if (t.trains({&in})) {
    t.record({&out}, {&in}, [](Backward& b) {
      const Tensor gradient = aten::contiguous(b.tape, b.gradient());
      b.give(0, exchanged(b.tape, gradient));
    });
  }
  return out;
}

// repeat_interleave along the heads: an index_select, whose gradient is added up per head.
Tensor repeated_heads(Tape& t, const Tensor& x, std::int64_t times) {
  if (times <= 1) return x;
  const Shape before = x.shape().as_contiguous();
  const Shape after{x.size(0), x.size(1), x.size(2) * times, x.size(3)};
  Tensor out = t.empty(after, x.dtype());
  t.launch({.name = "index_select", .kind = OpKind::gather, .traffic = out.bytes() * 2});
  if (t.trains({&x})) {
    t.record({&out}, {&x}, [before](Backward& b) {
      Tensor gradient = b.tape.empty(before, b.gradient().dtype());
      b.tape.launch({.name = "index_add",
                     .kind = OpKind::scatter,
                     .traffic = b.gradient().bytes() + gradient.bytes()});
      b.give(0, std::move(gradient));
    });
  }
  return out;
}

// (b, heads, s, d) of this rank -> (n s, b, heads / n, d) of all ranks
Tensor gather_tokens(Tape& t, const Tensor& x, std::int64_t ranks) {
  Tensor rows = aten::transpose(t, x, 1, 2);
  rows = aten::transpose(t, rows, 0, 1);  // (s, b, heads, d)
  rows = repeated_heads(t, rows, ranks / x.size(1));
  const std::int64_t s = rows.size(0), b = rows.size(1), d = rows.size(3);
  const std::int64_t own = rows.size(2) / ranks;
  rows = aten::reshape(t, rows, Shape{s, b, ranks, own, d});
  rows = aten::transpose(t, rows, 0, 2);
  rows = aten::transpose(t, rows, 1, 2);  // (n, s, b, own, d)
  rows = all_to_all(t, rows);
  return aten::view(t, rows, Shape{ranks * s, b, own, d});
}

// (s, b, heads, d) -> (b, heads, s, d), a copy
Tensor ulysses_heads_first(Tape& t, const Tensor& x) {
  Tensor out = aten::transpose(t, x, 0, 1);
  out = aten::transpose(t, out, 1, 2);
  return aten::contiguous(t, out);
}

// (b, n s, own, d) of all ranks -> (b, s, n own, d) of this rank
Tensor scatter_tokens(Tape& t, const Tensor& x, std::int64_t ranks) {
  const std::int64_t b = x.size(0), s = x.size(1) / ranks, own = x.size(2), d = x.size(3);
  Tensor rows = aten::transpose(t, x, 0, 1);
  rows = aten::reshape(t, rows, Shape{ranks, s, b, own * d});
  rows = all_to_all(t, rows);
  rows = aten::transpose(t, rows, 0, 1);
  rows = aten::transpose(t, rows, 1, 2);  // (s, b, n, own d)
  rows = aten::reshape(t, rows, Shape{s, b, ranks * own * d});
  rows = aten::transpose(t, rows, 0, 1);
  return aten::reshape(t, rows, Shape{b, s, ranks * own, d});
}

}  // namespace

Tensor on_all_tokens(Tape& t,
                     std::int64_t ranks,
                     const Tensor& q,
                     const Tensor& k,
                     const Tensor& v,
                     const AttentionCore& core) {
  if (ranks <= 1) return core(q, k, v);
  Tensor query = gather_tokens(t, q, ranks);
  Tensor key = gather_tokens(t, k, ranks);
  Tensor value = gather_tokens(t, v, ranks);
  query = ulysses_heads_first(t, query);
  key = ulysses_heads_first(t, key);
  value = ulysses_heads_first(t, value);
  const Tensor out = core(query, key, value);
  return scatter_tokens(t, out, ranks);
}

Tensor ulysses_attention(Tape& t,
                         const Context& c,
                         const Tensor& q,
                         const Tensor& k,
                         const Tensor& v,
                         const AttentionArguments& arguments) {
  const AttentionCore core = [&](const Tensor& query, const Tensor& key, const Tensor& value) {
    return attention(t, c, query, key, value, arguments);
  };
  return on_all_tokens(t, c.options.sequence_parallel, q, k, v, core);
}

}  // namespace zeroplan::hf
