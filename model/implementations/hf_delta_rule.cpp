#include "model/implementations/hf_delta_rule.hpp"

#include <utility>
#include <vector>

#include "model/graph/aten_recurrent.hpp"

namespace zeroplan::hf {

namespace {

constexpr std::int64_t kChunk = 64;

// The variables of the function's frame, which live until it returns.
struct Frame {
  std::int64_t batch = 0, sequence = 0, heads = 0, chunks = 0;
  Tensor query, key, value, beta, decay;
  Tensor value_beta, key_beta;
  Tensor upper, cumulated, pairwise;
  Tensor system, within, decayed_key_beta;
  Tensor new_values, key_decay;
  Tensor state, out, chunk_decay;
};

// x.transpose(1, 2).to(float32, contiguous)
Tensor delta_rule_heads_first(Tape& t, const Tensor& x) {
  const Tensor turned = aten::transpose(t, x, 1, 2);
  if (x.dtype() == DType::fp32) return turned;
  return aten::to_contiguous(t, turned, DType::fp32);
}

// x * rsqrt((x * x).sum(-1) + eps)
Tensor delta_rule_l2_norm(Tape& t, const Tensor& x) {
  Tensor factor = aten::mul(t, x, x);
  factor = aten::mean_last(t, factor);  // a sum, of as many bytes
  factor = aten::shift(t, factor);
  factor = aten::rsqrt(t, factor);
  return aten::mul(t, x, factor);
}

void prepare(Tape& t, const DeltaRuleInputs& given, Frame& f) {
  {
    // From transformers 5.23 on the function itself repeats queries and keys that serve several
    // heads of values.
    const std::int64_t served = f.heads / given.query.size(2);
    const auto repeated = [&](const Tensor& x) {
      return served > 1 ? aten::repeat_heads(t, x, served) : x;
    };
    const Tensor query = repeated(given.query), key = repeated(given.key);
    f.query = delta_rule_heads_first(t, query);
    f.key = delta_rule_heads_first(t, key);
    f.value = delta_rule_heads_first(t, given.value);
    f.beta = delta_rule_heads_first(t, given.beta);
    f.decay = delta_rule_heads_first(t, given.decay);
  }
  f.query = delta_rule_l2_norm(t, f.query);
  f.key = delta_rule_l2_norm(t, f.key);
  f.query = aten::scale(t, f.query);
  const std::int64_t missing = (kChunk - f.sequence % kChunk) % kChunk;
  f.chunks = (f.sequence + missing) / kChunk;
  {
    const Tensor query = aten::pad_end(t, f.query, 2, missing);
    const Tensor key = aten::pad_end(t, f.key, 2, missing);
    const Tensor value = aten::pad_end(t, f.value, 2, missing);
    f.query = query;
    f.key = key;
    f.value = value;
  }
  {
    const Tensor beta = aten::pad_end(t, f.beta, 2, missing);
    const Tensor decay = aten::pad_end(t, f.decay, 2, missing);
    f.beta = beta;
    f.decay = decay;
  }
}

// (b, heads, s, d) -> (b, heads, chunks, 64, d)
Tensor in_chunks(Tape& t, const Frame& f, const Tensor& x) {
  return aten::reshape(t, x, Shape{f.batch, f.heads, f.chunks, kChunk, x.size(-1)});
}

// a @ b of (b, heads, chunks, ., .)
Tensor product(Tape& t, const Frame& f, const Tensor& a, const Tensor& b) {
  const std::int64_t count = f.batch * f.heads * f.chunks;
  const Tensor left = aten::reshape(t, a, Shape{count, a.size(3), a.size(4)});
  const Tensor right = aten::reshape(t, b, Shape{count, b.size(3), b.size(4)});
  const Tensor out = aten::bmm(t, left, right);
  return aten::view(t, out, Shape{f.batch, f.heads, f.chunks, a.size(3), b.size(4)});
}

// exp(x).unsqueeze(-1)
Tensor factor_of(Tape& t, const Tensor& x) {
  const Tensor out = aten::exp(t, x);
  return aten::unsqueeze(t, out, 4);
}

void split_into_chunks(Tape& t, Frame& f) {
  {
    const Tensor rows = aten::unsqueeze(t, f.beta, 3);
    f.value_beta = aten::mul(t, f.value, rows);
  }
  {
    const Tensor rows = aten::unsqueeze(t, f.beta, 3);
    f.key_beta = aten::mul(t, f.key, rows);
  }
  f.query = in_chunks(t, f, f.query);
  f.key = in_chunks(t, f, f.key);
  f.key_beta = in_chunks(t, f, f.key_beta);
  f.value_beta = in_chunks(t, f, f.value_beta);
  f.decay = aten::reshape(t, f.decay, Shape{f.batch, f.heads, f.chunks, kChunk});
  f.upper = t.empty(Shape{1, 1, 1, kChunk, kChunk}, DType::boolean);
  t.launch({.name = "triu", .traffic = f.upper.bytes() * 3, .kernels = 2});
  f.cumulated = aten::cumsum_last(t, f.decay);
}

// Decays between the positions of a chunk, its triangular system, and attention within it.
void solve_chunks(Tape& t, Frame& f) {
  {
    const Tensor rows = aten::unsqueeze(t, f.cumulated, 4);
    const Tensor columns = aten::unsqueeze(t, f.cumulated, 3);
    f.pairwise = aten::sub(t, rows, columns);
  }
  f.pairwise = aten::masked_fill(t, f.pairwise, f.upper);
  f.pairwise = aten::exp(t, f.pairwise);
  {
    const Tensor turned = aten::transpose(t, f.key, -2, -1);
    const Tensor scores = product(t, f, f.key_beta, turned);
    f.system = aten::mul(t, scores, f.pairwise);
  }
  {
    const Tensor turned = aten::transpose(t, f.key, -2, -1);
    const Tensor scores = product(t, f, f.query, turned);
    f.within = aten::mul(t, scores, f.pairwise);
  }
  {
    const Tensor factor = factor_of(t, f.cumulated);
    f.decayed_key_beta = aten::mul(t, f.key_beta, factor);
  }
  f.new_values = aten::solve_triangular(t, f.system, f.value_beta);
  f.key_decay = aten::solve_triangular(t, f.system, f.decayed_key_beta);
}

void begin_scan(Tape& t, Frame& f) {
  f.state = t.empty(Shape{f.batch, f.heads, f.key.size(-1), f.value.size(-1)}, DType::fp32);
  t.launch({.name = "zeros", .kind = OpKind::fill, .traffic = f.state.bytes()});
  f.out = t.empty(f.new_values.shape(), DType::fp32);
  t.launch({.name = "zeros_like", .kind = OpKind::fill, .traffic = f.out.bytes()});
  {
    const Tensor factor = factor_of(t, f.cumulated);
    f.query = aten::mul(t, f.query, factor);
  }
  // What only states need: of a single chunk nothing comes back through it.
  const bool single = f.chunks == 1;
  const Tensor cumulated = single ? f.cumulated.detached() : f.cumulated;
  {
    const Tensor last = aten::slice(t, cumulated, -1, 1);
    const Tensor rest = aten::sub(t, last, cumulated);
    const Tensor factor = factor_of(t, rest);
    f.key = aten::mul(t, single ? f.key.detached() : f.key, factor);
  }
  {
    const Tensor last = aten::select(t, cumulated, 3);
    Tensor factor = aten::exp(t, last);
    factor = aten::unsqueeze(t, factor, 3);
    f.chunk_decay = aten::unsqueeze(t, factor, 4);
  }
}

// One chunk of the scan; `added` and `carried` are variables of the loop, which keep their values
// until the next chunk's replace them.
void scan_chunk(Tape& t, Frame& f, Tensor& added, Tensor& carried) {
  {
    const Tensor fresh = aten::select(t, f.new_values, 2);
    const Tensor decay = aten::select(t, f.key_decay, 2);
    const Tensor read = aten::matmul(t, decay, f.state);
    added = aten::sub(t, fresh, read);
  }
  {
    const Tensor query = aten::select(t, f.query, 2);
    carried = aten::matmul(t, query, f.state);
  }
  {
    const Tensor scores = aten::select(t, f.within, 2);
    const Tensor inner = aten::matmul(t, scores, added);
    const Tensor sum = aten::add(t, carried, inner);
    f.out = aten::write_slice(t, f.out, sum);
  }
}

// The state after a chunk. Nothing is computed from the last one, whose graph goes with it: it
// keeps nothing that the frame does not.
void update_state(Tape& t, Frame& f, const Tensor& added, bool last) {
  const auto used = [&](const Tensor& x) { return last ? x.detached() : x; };
  const Tensor factor = aten::select(t, used(f.chunk_decay), 2);
  const Tensor decayed = aten::mul(t, used(f.state), factor);
  Tensor key = aten::select(t, used(f.key), 2);
  key = aten::transpose(t, key, -2, -1);
  const Tensor update = aten::matmul(t, key, used(added));
  f.state = aten::add(t, decayed, update);
}

// How many chunks each turn of the loop stands for. The first is alone, and so are the last two: of
// the last nothing comes back to the states, so that the one before begins the sums of their
// gradients. Those between are alike, and many of them share few turns.
std::vector<std::int64_t> turns_of(std::int64_t chunks, std::int64_t most) {
  if (chunks <= most) return std::vector<std::int64_t>(static_cast<std::size_t>(chunks), 1);
  const std::int64_t between = most - 3, alike = chunks - 3;
  std::vector<std::int64_t> turns{1};
  for (std::int64_t i = 0; i < between; ++i) {
    turns.push_back(alike / between + (i < alike % between ? 1 : 0));
  }
  turns.insert(turns.end(), 2, 1);
  return turns;
}

}  // namespace

const char* who_computes(LinearAttention linear_attention) {
  return linear_attention == LinearAttention::torch
             ? "Linear attention runs PyTorch's own operations: flash-linear-attention and "
               "causal-conv1d are not installed."
             : "Linear attention runs flash-linear-attention's kernels, its convolution PyTorch's: "
               "causal-conv1d is not installed.";
}

Tensor chunk_gated_delta_rule(Tape& t, const DeltaRuleInputs& given, Tensor& state) {
  Frame f;
  f.batch = given.query.size(0);
  f.sequence = given.query.size(1);
  f.heads = given.value.size(2);
  prepare(t, given, f);
  split_into_chunks(t, f);
  solve_chunks(t, f);
  begin_scan(t, f);
  Tensor added, carried;
  const std::vector<std::int64_t> turns = turns_of(f.chunks, given.most_turns);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const Tape::InARow row(t, turns[i]);
    scan_chunk(t, f, added, carried);
    update_state(t, f, added, i + 1 == turns.size());
  }
  state = f.state;
  f.out = aten::reshape(t, f.out, Shape{f.batch, f.heads, f.chunks * kChunk, f.value.size(-1)});
  f.out = aten::slice(t, f.out, 2, f.sequence);
  f.out = aten::transpose(t, f.out, 1, 2);
  return aten::to_contiguous(t, f.out, given.query.dtype());
}

// --- flash-linear-attention

namespace {

// ctx.save_for_backward keeps normed queries and keys with the reciprocals of their lengths,
// sums of decays within chunks, and the inverse of each chunk's system.
struct FlaSaved {
  Tensor query, query_length, key, key_length, value, decay, beta, inverse;
};

// Sizes of the kernels' grids.
struct FlaShape {
  std::int64_t batch = 0, sequence = 0, heads = 0, chunks = 0, key_dim = 0, value_dim = 0;

  Shape states() const { return {batch, chunks, heads, key_dim, value_dim}; }
  Shape numbers() const { return {batch, sequence, heads}; }
  Shape keys() const { return {batch, sequence, heads, key_dim}; }
  // `columns` by `inner` products for each chunk of each head.
  MatrixProduct product(std::int64_t columns, std::int64_t inner, DType dtype) const {
    return {batch * heads * chunks, kChunk, columns, inner, dtype};
  }
};

FlaShape fla_shape(const Tensor& query, const Tensor& value) {
  const std::int64_t sequence = query.size(1);
  return {query.size(0),
          sequence,
          value.size(2),
          (sequence + kChunk - 1) / kChunk,
          query.size(3),
          value.size(3)};
}

// One Triton kernel that reads and writes `traffic` and multiplies like `product`.
void fla_kernel(Tape& t, std::string_view name, Bytes traffic, const MatrixProduct& product) {
  t.launch({.name = name, .kind = OpKind::matmul, .traffic = traffic, .library = Library::own},
           product);
}

Tensor like(Tape& t, const Tensor& x) { return t.empty(x.shape().as_contiguous(), x.dtype()); }

// l2norm_fwd
Tensor fla_l2_norm(Tape& t, const Tensor& x, Tensor& length) {
  Tensor out = like(t, x);
  length = t.empty(Shape{x.size(0), x.size(1), x.size(2)}, DType::fp32);
  t.launch({.name = "l2norm_fwd", .traffic = x.bytes() + out.bytes() + length.bytes()});
  return out;
}

// l2norm_bwd
Tensor fla_l2_norm_gradient(Tape& t, const Tensor& normed, const Tensor& gradient) {
  Tensor out = like(t, normed);
  t.launch({.name = "l2norm_bwd", .traffic = normed.bytes() + gradient.bytes() + out.bytes()});
  return out;
}

Tensor fla_local_cumsum(Tape& t, const Tensor& decay) {
  Tensor out = t.empty(decay.shape().as_contiguous(), DType::fp32);
  t.launch({.name = "chunk_local_cumsum", .traffic = decay.bytes() + out.bytes()});
  return out;
}

// The gradients of queries or keys, summed over the heads of values that share a head of theirs:
// x.view(b, s, heads, served, d).sum(3).
Tensor fla_served_sum(Tape& t, Tensor x, const Tensor& of) {
  if (x.size(2) == of.size(2)) return x;
  Tensor out = like(t, of);
  t.launch({.name = "sum", .kind = OpKind::reduction, .traffic = x.bytes() + out.bytes()});
  return out;
}

// A chunk adds rows to the states: weights of what is there (w) and new values (u).
struct FlaRows {
  Tensor w, u;
};

// recompute_w_u_fwd
FlaRows fla_rows(Tape& t, const FlaShape& f, const FlaSaved& saved) {
  FlaRows rows;
  rows.w = t.empty(f.keys(), saved.key.dtype());
  rows.u = like(t, saved.value);
  fla_kernel(t,
             "recompute_w_u_fwd",
             saved.key.bytes() + rows.w.bytes() + saved.value.bytes() * 2 + saved.inverse.bytes(),
             f.product(f.key_dim + f.value_dim, kChunk, saved.key.dtype()));
  return rows;
}

struct FlaStates {
  Tensor states, values, last;
};

// chunk_gated_delta_rule_fwd_h: the state before each chunk, and the values that it takes up.
FlaStates fla_states(
    Tape& t, const FlaShape& f, const FlaSaved& saved, const FlaRows& rows, bool caches) {
  FlaStates made;
  made.states = t.empty(f.states(), saved.key.dtype());
  if (caches) {
    made.last = t.empty(Shape{f.batch, f.heads, f.key_dim, f.value_dim}, DType::fp32);
    t.launch({.name = "zeros", .kind = OpKind::fill, .traffic = made.last.bytes()});
  }
  made.values = like(t, rows.u);
  fla_kernel(t,
             "chunk_gated_delta_rule_fwd_h",
             rows.w.bytes() + saved.key.bytes() + rows.u.bytes() * 2 + made.states.bytes(),
             f.product(2 * f.value_dim, f.key_dim, saved.key.dtype()));
  return made;
}

Tensor fla_forward(Tape& t, const FlaShape& f, FlaSaved& saved, bool caches, Tensor& state) {
  saved.inverse = t.empty(Shape{f.batch, f.sequence, f.heads, kChunk}, saved.key.dtype());
  t.launch({.name = "zeros", .kind = OpKind::fill, .traffic = saved.inverse.bytes()});
  fla_kernel(t,
             "chunk_gated_delta_rule_fwd_kkt_solve",
             saved.key.bytes() + saved.inverse.bytes(),
             f.product(kChunk, f.key_dim, saved.key.dtype()));
  const FlaRows rows = fla_rows(t, f, saved);
  FlaStates states = fla_states(t, f, saved, rows, caches);
  state = states.last;
  Tensor out = like(t, saved.value);
  fla_kernel(t,
             "chunk_fwd_o",
             saved.query.bytes() + saved.key.bytes() + out.bytes() * 2 + states.states.bytes(),
             f.product(2 * f.value_dim + kChunk, f.key_dim, saved.key.dtype()));
  return out;
}

struct FlaGradients {
  Tensor query, key, value, decay, beta;
};

// chunk_gated_delta_rule_bwd, whose variables live until it returns.
FlaGradients fla_backward(Tape& t, const FlaSaved& saved, const Tensor& out) {
  const FlaShape f = fla_shape(saved.query, saved.value);
  const DType dtype = saved.key.dtype();
  const FlaRows rows = fla_rows(t, f, saved);
  const FlaStates states = fla_states(t, f, saved, rows, false);
  Tensor values = like(t, out);
  fla_kernel(t,
             "chunk_bwd_dv_local",
             saved.query.bytes() + saved.key.bytes() + out.bytes() * 2,
             f.product(f.value_dim + f.key_dim, kChunk, dtype));
  const Tensor state_gradients = t.empty(f.states(), dtype);
  {
    const Tensor before = values;
    values = like(t, before);
    fla_kernel(t,
               "chunk_gated_delta_rule_bwd_dhu",
               saved.query.bytes() + saved.key.bytes() + rows.w.bytes() + out.bytes() * 3 +
                   state_gradients.bytes(),
               f.product(3 * f.value_dim, f.key_dim, dtype));
  }
  FlaGradients made;
  made.query = t.empty(f.keys(), dtype);
  made.key = t.empty(f.keys(), dtype);
  made.decay = t.empty(f.numbers(), DType::fp32);
  const Tensor row_gradients = like(t, rows.w);
  fla_kernel(t,
             "chunk_bwd_dqkwg",
             saved.query.bytes() + saved.key.bytes() + rows.w.bytes() * 4 + out.bytes() * 3 +
                 states.states.bytes() * 2,
             f.product(4 * f.value_dim, f.key_dim, dtype));
  made.query = fla_served_sum(t, std::move(made.query), saved.query);
  made.key = fla_served_sum(t, std::move(made.key), saved.key);
  const Tensor summed = t.empty(f.numbers(), DType::fp32);
  t.launch({.name = "sum", .kind = OpKind::reduction, .traffic = summed.bytes() * 2});
  made.decay = summed;
  Tensor more_keys = t.empty(f.keys(), dtype);
  made.value = like(t, saved.value);
  const Tensor more_decay = t.empty(f.numbers(), DType::fp32);
  made.beta = like(t, saved.beta);
  fla_kernel(
      t,
      "prepare_wy_repr_bwd",
      saved.key.bytes() + rows.w.bytes() * 2 + saved.value.bytes() * 3 + saved.inverse.bytes(),
      f.product(2 * (f.key_dim + f.value_dim), kChunk, dtype));
  more_keys = fla_served_sum(t, std::move(more_keys), saved.key);
  t.launch({.name = "add_", .traffic = made.key.bytes() * 3});
  t.launch({.name = "add_", .traffic = made.decay.bytes() * 3});
  made.decay = fla_local_cumsum(t, made.decay);
  return made;
}

// The whole rule (fla/ops/gated_delta_rule/chunk.py, ChunkGatedDeltaRuleFunction of 0.6 with
// use_qk_l2norm_in_kernel): Triton kernels keep what goes in and one matrix a chunk, and recompute
// the rest. Left out: that a short batch has too few heads to fill the GPU in the scan over chunks.
Tensor fla_chunk_gated_delta_rule(Tape& t,
                                  const DeltaRuleInputs& given,
                                  bool caches,
                                  Tensor& state) {
  const FlaShape f = fla_shape(given.query, given.value);
  const std::vector<const Tensor*> inputs = {
      &given.query, &given.key, &given.value, &given.decay, &given.beta};
  const bool trains = t.trains({&given.query, &given.key, &given.value, &given.decay, &given.beta});
  FlaSaved saved;
  Tensor out;
  {
    // input_guard's arguments live until forward returns.
    const Tensor query = aten::contiguous(t, given.query.detached());
    const Tensor key = aten::contiguous(t, given.key.detached());
    saved.value = aten::contiguous(t, given.value.detached());
    saved.beta = given.beta.detached();
    saved.query = fla_l2_norm(t, query, saved.query_length);
    saved.key = fla_l2_norm(t, key, saved.key_length);
    saved.decay = fla_local_cumsum(t, given.decay.detached());
    out = fla_forward(t, f, saved, caches, state);
  }
  if (!trains) return out;
  for (Tensor* x : {&saved.query,
                    &saved.query_length,
                    &saved.key,
                    &saved.key_length,
                    &saved.value,
                    &saved.decay,
                    &saved.beta,
                    &saved.inverse}) {
    *x = t.save(*x);
  }
  t.record({&out}, inputs, [saved](Backward& b) {
    FlaGradients made = fla_backward(b.tape, saved, aten::contiguous(b.tape, b.gradient()));
    made.query = fla_l2_norm_gradient(b.tape, saved.query, made.query);
    made.key = fla_l2_norm_gradient(b.tape, saved.key, made.key);
    b.give(0, std::move(made.query));
    b.give(1, std::move(made.key));
    b.give(2, std::move(made.value));
    b.give(3, std::move(made.decay));
    b.give(4, std::move(made.beta));
  });
  return out;
}

}  // namespace

Tensor gated_delta_rule(
    Tape& t, LinearAttention by, const DeltaRuleInputs& given, bool caches, Tensor& state) {
  return by == LinearAttention::fla ? fla_chunk_gated_delta_rule(t, given, caches, state)
                                    : chunk_gated_delta_rule(t, given, state);
}

}  // namespace zeroplan::hf
