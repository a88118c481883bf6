// Mixture-of-experts blocks of Mixtral, Qwen2-MoE and Qwen3-MoE: a Python loop over the experts
// (modeling_mixtral 4.50), or grouped products over all of them (transformers 5.17, torch from 2.9
// on: integrations/moe.py grouped_mm_experts_forward). Tokens are taken to be spread evenly; an
// uneven spread moves bytes between experts and keeps their sum.
#include "model/implementations/hf_moe.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/implementations/families.hpp"

namespace zeroplan::hf {

namespace {

struct ExpertNames {
  const char* gate;
  const char* up;
  const char* down;
};
constexpr DType kInt32 = DType::fp32;  // as wide
constexpr ExpertNames kMixtral{"w1", "w3", "w2"};
constexpr ExpertNames kQwen{"gate_proj", "up_proj", "down_proj"};

// down(act(gate(x)) * up(x)), as LlamaMLP.
Tensor feed_forward(Tape& t,
                    const Context& c,
                    const std::string& module,
                    const ExpertNames& names,
                    const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  Tensor gate = linear(t, c, names.gate, in);
  gate = activation(t, c.shape().activation, gate);
  Tensor product;
  {
    const Tensor up = linear(t, c, names.up, in);
    product = aten::mul(t, gate, up);
    gate = Tensor();
  }
  return t.leave(scope, linear(t, c, names.down, product));
}

struct Routing {
  Tensor logits;   // transformers 5 holds them until the block returns
  Tensor weights;  // of the chosen experts
};

// softmax over the experts in fp32, the k largest, normalised, in the dtype of the hidden states.
Routing route_moe(Tape& t, const Context& c, const Tensor& rows) {
  const Tensor logits = linear(t, c, "gate", rows);
  Tensor weights = aten::softmax(t, logits, DType::fp32);
  weights = aten::topk(t, weights, c.shape().experts.experts_per_token);
  weights = aten::scale(t, weights, "div");
  weights = aten::to(t, weights, rows.dtype());
  return {c.shape().experts.fused ? logits : Tensor(), weights};
}

// current_state = hidden[top_x]; final.index_add_(0, top_x, expert(current_state) * weights)
Tensor add_expert(Tape& t,
                  const Context& c,
                  std::int64_t expert,
                  const ExpertNames& names,
                  const Tensor& rows,
                  const Tensor& weights,
                  const Tensor& sum) {
  const ExpertShape& shape = c.shape().experts;
  const std::int64_t tokens = rows.size(0);
  const std::int64_t share =
      std::max<std::int64_t>(1, ceil_div(tokens * shape.experts_per_token, shape.experts));
  t.launch({.name = "nonzero",
            .kind = OpKind::gather,
            .traffic = Bytes::of(8 * tokens * shape.experts_per_token),
            .kernels = 3});
  const Tensor state = aten::index_rows(t, rows, share);
  std::string module = "experts.";
  module.append(std::to_string(expert));
  Tensor out = feed_forward(t, c, module, names, state);
  const Tensor flat = aten::view(t, weights, Shape{tokens * shape.experts_per_token, 1});
  const Tensor factor = aten::index_rows(t, flat, share);
  out = aten::mul(t, out, factor);
  return aten::index_add(t, sum, out);
}

// sigmoid(shared_expert_gate(x)) * shared_expert(x), added (Qwen2MoeSparseMoeBlock); `done`: the
// shared expert's output where it has run.
Tensor add_shared_expert(
    Tape& t, const Context& c, const Tensor& rows, const Tensor& done, const Tensor& sum) {
  const Tensor shared = done.defined() ? done : feed_forward(t, c, "shared_expert", kQwen, rows);
  Tensor gate = linear(t, c, "shared_expert_gate", rows);
  gate = aten::sigmoid(t, gate);
  const Tensor gated = aten::mul(t, gate, shared);
  return aten::add(t, sum, gated);
}

// Where the groups of `rows` sorted row numbers end: histc, cumsum.
Tensor group_ends(Tape& t, std::int64_t rows, std::int64_t groups) {
  const Tensor ids = t.empty(Shape{rows}, kInt32);
  t.launch({.name = "_to_copy", .kind = OpKind::copy, .traffic = ids.bytes() * 3});
  const Tensor counts = t.empty(Shape{groups}, kInt32);
  t.launch({.name = "histc", .kind = OpKind::reduction, .traffic = ids.bytes(), .kernels = 2});
  Tensor ends = t.empty(Shape{groups}, kInt32);
  t.launch({.name = "cumsum", .kind = OpKind::reduction, .traffic = ends.bytes() * 2});
  return ends;
}

// act(gate) * up of the two halves (_default_apply_gate).
Tensor apply_gate(Tape& t, const Context& c, const Tensor& both) {
  const std::int64_t width = c.shape().experts.intermediate;
  const std::vector<Tensor> halves = aten::split(t, both, {width, width}, -1);
  const Tensor activated = activation(t, c.shape().activation, halves[0]);
  return aten::mul(t, activated, halves[1]);
}

// weighted[inverse of the order], summed over each token's experts.
Tensor back_in_order(Tape& t, const Context& c, const Tensor& weighted) {
  const std::int64_t rows = weighted.size(0);
  const std::int64_t chosen = c.shape().experts.experts_per_token;
  const Tensor inverse = t.empty(Shape{rows}, DType::int64);
  {
    const Tensor numbers = t.empty(Shape{rows}, DType::int64);
    t.launch({.name = "arange", .kind = OpKind::fill, .traffic = numbers.bytes()});
    t.launch({.name = "index_put_", .kind = OpKind::scatter, .traffic = numbers.bytes() * 3});
  }
  const Tensor ordered = aten::index_rows(t, weighted, inverse);
  const Tensor apart = aten::view(t, ordered, Shape{rows / chosen, chosen, c.shape().hidden});
  return aten::sum(t, apart, 1);
}

}  // namespace

aten::GroupedProducts products_on(const Context& c) {
  const int generation = c.options.compute_capability / 10;
  const bool has_kernel = (generation == 9 || generation == 10) && c.compute_dtype() == DType::bf16;
  return has_kernel ? aten::GroupedProducts::one_kernel : aten::GroupedProducts::loop;
}

Tensor gated_mlp(Tape& t, const Context& c, const std::string& module, const Tensor& x) {
  return feed_forward(t, c, module, kQwen, x);
}

// grouped_mm_experts_forward. What Python's frame names lives until it returns.
Tensor fused_experts(Tape& t, const Context& c, const Tensor& hidden, const Tensor& weights) {
  Tensor in = hidden;
  const auto scope = t.enter("experts", in);
  const ExpertShape& shape = c.shape().experts;
  const std::int64_t rows = in.size(0) * shape.experts_per_token;
  const aten::GroupedProducts products = products_on(c);
  const aten::Sorted order = aten::sort(t, rows);
  Tensor states;
  {
    const Tensor tokens = t.empty(Shape{rows}, DType::int64);  // perm // num_top_k
    t.launch({.name = "floor_divide", .traffic = tokens.bytes() * 2});
    states = aten::index_rows(t, in, tokens);
  }
  const Tensor flat = aten::view(t, weights, Shape{rows, 1});
  const Tensor factors = aten::index_rows(t, flat, order.indices);
  const Tensor ends = group_ends(t, rows, shape.experts);
  // Rows of experts that live elsewhere: none here, but the mask and its fills run.
  const Tensor mask = t.empty(Shape{rows, 1}, DType::boolean);
  t.launch({.name = "ge", .traffic = mask.bytes() * 9});
  t.launch({.name = "clamp_", .traffic = order.values.bytes() * 2});
  const auto product = [&](std::string_view weight, const Tensor& x) {
    return aten::grouped_mm(t, x, t.module_parameter(weight), ends, products);
  };
  states = aten::masked_fill_in_place(t, states, mask);
  Tensor out = product("gate_up_proj", states);
  out = aten::masked_fill(t, out, mask);
  out = apply_gate(t, c, out);
  out = product("down_proj", out);
  out = aten::masked_fill(t, out, mask);
  const Tensor weighted = aten::mul(t, out, factors);
  const Tensor sum = back_in_order(t, c, weighted);
  return t.leave(scope, aten::to(t, sum, in.dtype()));
}

namespace {

// The experts one after the other, each adding to the sum.
Tensor looped_experts(Tape& t, const Context& c, const Tensor& rows, const Tensor& weights) {
  const ExpertNames& names = has_layer(t, "experts.0.w1") ? kMixtral : kQwen;
  const ExpertShape& shape = c.shape().experts;
  Tensor sum = t.empty(rows.shape(), rows.dtype());
  t.launch({.name = "zeros", .kind = OpKind::fill, .traffic = sum.bytes()});
  // one_hot of the chosen experts, int64 (tokens, k, experts), alive through the loop
  const Tensor mask =
      t.empty(Shape{rows.size(0), shape.experts_per_token, shape.experts}, DType::int64);
  t.launch({.name = "one_hot", .kind = OpKind::scatter, .traffic = mask.bytes() * 2, .kernels = 3});
  for (std::int64_t e = 0; e < shape.experts; ++e) {
    sum = add_expert(t, c, e, names, rows, weights, sum);
  }
  return sum;
}

}  // namespace

Tensor sparse_moe(Tape& t, const Context& c, std::string_view module, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter(module, in);
  const Tensor rows = aten::view(t, in, Shape{c.batch * c.sequence, c.shape().hidden});
  const bool fused = c.shape().experts.fused;
  const bool shares = has_layer(t, "shared_expert.down_proj");
  // Qwen2MoeSparseMoeBlock of transformers 5 runs its shared expert first.
  const Tensor shared =
      shares && fused ? feed_forward(t, c, "shared_expert", kQwen, rows) : Tensor();
  const Routing routing = route_moe(t, c, rows);
  Tensor sum = fused ? fused_experts(t, c, rows, routing.weights)
                     : looped_experts(t, c, rows, routing.weights);
  if (shares) sum = add_shared_expert(t, c, rows, shared, sum);
  return t.leave(scope, aten::view(t, sum, c.hidden_shape()));
}

}  // namespace zeroplan::hf
