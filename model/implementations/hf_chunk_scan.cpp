#include "model/implementations/hf_chunk_scan.hpp"

#include "base/check.hpp"
#include "model/graph/aten_recurrent.hpp"

namespace zeroplan::hf {

namespace {

// The variables of the function's frame, which live until it returns. Symbols of the comments: b
// batch, c chunks, l positions of a chunk, h heads, p width of a head, n states.
struct Frame {
  std::int64_t batch = 0, chunk = 0, chunks = 0, missing = 0;
  bool multiplies = false;  // matrices, in the place of whole products that are summed up
  Tensor dt, x, written, read, residual;
  Tensor decay, cumulated;                  // (b, h, c, l)
  Tensor pairwise, scores, weights, inner;  // L, G, M and Y_diag
  Tensor to_end, decayed, added, states;    // decay_states, B_decay
  Tensor between, carried, from_start, products, outer, out;
};

// x[..., None] with the heads of (b, h, c, l) moved last: (b, c, l, h, 1)
Tensor by_position(Tape& t, const Tensor& x) {
  const Tensor turned = aten::transpose(t, x, 1, 2);
  const Tensor last = aten::transpose(t, turned, 2, 3);
  return aten::unsqueeze(t, last, 4);
}

// (x[at a new dimension a] * y[at a new dimension b]).sum(over)
Tensor contraction(Tape& t, const Tensor& x, int a, const Tensor& y, int b, int over) {
  const Tensor left = aten::unsqueeze(t, x, a);
  const Tensor right = aten::unsqueeze(t, y, b);
  const Tensor product = aten::mul(t, left, right);
  return aten::sum(t, product, over);
}

// (b, s, h) or (b, s, h, d) in chunks, padded to whole ones.
Tensor scan_chunks(Tape& t, const Frame& f, const Tensor& x) {
  const Tensor padded = aten::pad_end(t, x, 1, f.missing);
  return aten::reshape(t,
                       padded,
                       x.shape().rank() == 3
                           ? Shape{f.batch, f.chunks, f.chunk, x.size(2)}
                           : Shape{f.batch, f.chunks, f.chunk, x.size(2), x.size(3)});
}

// x.masked_fill(~torch.tril(...), number)
Tensor lower_triangle(Tape& t, const Tensor& x) {
  const Tensor mask = t.empty(Shape{x.size(-1), x.size(-1)}, DType::boolean);
  t.launch({.name = "tril", .traffic = mask.bytes() * 4, .kernels = 3});
  return aten::masked_fill(t, x, mask);
}

// exp(segment_sum(x)): (b, h, c, l) -> (b, h, c, l, l)
Tensor segment_decays(Tape& t, const Tensor& x) {
  const int rank = x.shape().rank();
  const std::int64_t length = x.size(-1);
  const Tensor column = aten::unsqueeze(t, x, rank);
  Tensor sums;
  {
    const Tensor wide =
        aten::expand(t, column, column.shape().with_size(rank, length).as_contiguous());
    const Tensor lower = lower_triangle(t, wide);
    sums = aten::cumsum_last(t, lower);  // along the rows, of as many bytes
    sums = lower_triangle(t, sums);
  }
  return aten::exp(t, sums);
}

void prepare_scan(Tape& t, const ChunkScanInputs& given, Frame& f) {
  const std::int64_t heads = given.x.size(2), repeats = heads / given.written.size(2);
  f.dt = given.shift.defined() ? aten::add(t, given.dt, given.shift) : given.dt;
  f.dt = aten::softplus(t, f.dt);
  f.dt = aten::clamp(t, f.dt);
  f.x = aten::to(t, given.x, DType::fp32);
  const auto of_heads = [&](const Tensor& x) {
    const Tensor wide = aten::to(t, x, DType::fp32);
    return aten::repeat_heads(t, wide, repeats);
  };
  f.written = of_heads(given.written);
  f.read = of_heads(given.read);
  if (given.residual.defined()) {
    const Tensor padded = aten::pad_end(t, f.x, 1, f.missing);
    const Tensor factor = aten::unsqueeze(t, given.residual, 1);
    f.residual = aten::mul(t, factor, padded);
  }
  {
    const Tensor column = aten::unsqueeze(t, f.dt, 3);
    const Tensor wide = aten::to(t, column, DType::fp32);
    f.x = aten::mul(t, f.x, wide);
  }
  {
    const Tensor wide = aten::to(t, f.dt, DType::fp32);
    f.decay = aten::mul(t, given.decay, wide);
  }
  const Tensor x = scan_chunks(t, f, f.x), decay = scan_chunks(t, f, f.decay);
  const Tensor written = scan_chunks(t, f, f.written), read = scan_chunks(t, f, f.read);
  f.x = x;
  f.written = written;
  f.read = read;
  f.decay = aten::transpose(t, decay, 2, 3);
  f.decay = aten::transpose(t, f.decay, 1, 2);
  f.cumulated = aten::cumsum_last(t, f.decay);
}

// Y_diag: outputs of each position from the positions of its own chunk.
void scan_within(Tape& t, Frame& f) {
  f.pairwise = segment_decays(t, f.decay);
  f.scores = f.multiplies ? aten::einsum(t, f.read, "bclhn", f.written, "bcshn", "bclsh")
                          : contraction(t, f.read, 3, f.written, 2, 5);
  Tensor turned = aten::transpose(t, f.pairwise, 1, 2);
  turned = aten::transpose(t, turned, 2, 3);
  turned = aten::transpose(t, turned, 3, 4);
  if (f.multiplies) {
    f.weights = aten::mul(t, f.scores, turned);
    f.inner = aten::einsum(t, f.weights, "bclsh", f.x, "bcshp", "bclhp");
    return;
  }
  f.weights = contraction(t, f.scores, 5, turned, 5, 5);
  f.inner = contraction(t, f.weights, 5, f.x, 2, 3);
}

// The state that each chunk adds, and those with which they begin.
void pass_states(Tape& t, Frame& f) {
  {
    const Tensor last = aten::slice(t, f.cumulated, 3, 1);
    const Tensor rest = aten::sub(t, last, f.cumulated);
    f.to_end = aten::exp(t, rest);
  }
  {
    const Tensor factor = by_position(t, f.to_end);
    f.decayed = aten::mul(t, f.written, factor);
  }
  f.added = f.multiplies ? aten::einsum(t, f.decayed, "bclhn", f.x, "bclhp", "bchpn")
                         : contraction(t, f.decayed, 4, f.x, 5, 2);
  const Tensor first = t.empty(f.added.shape().with_size(1, 1).as_contiguous(), DType::fp32);
  t.launch({.name = "zeros_like", .kind = OpKind::fill, .traffic = first.bytes()});
  f.added = aten::cat(t, {&first, &f.added}, 1);
  {
    const Tensor last = aten::select(t, f.cumulated, 3);
    const Tensor padded = aten::pad_end(t, last, 2, 1);
    f.between = segment_decays(t, padded);
    f.between = aten::transpose(t, f.between, 1, 3);
  }
  if (f.multiplies) {
    f.carried = aten::einsum(t, f.between, "bzch", f.added, "bzhpn", "bchpn");
  } else {
    const Tensor column = aten::unsqueeze(t, f.between, 4);
    f.carried = contraction(t, column, 5, f.added, 2, 1);
  }
  f.states = aten::slice(t, f.carried, 1, f.chunks);
}

// Y_off, outputs from the states before each chunk, is added to Y_diag.
void read_states(Tape& t, Frame& f) {
  f.from_start = aten::exp(t, f.cumulated);
  if (f.multiplies) {
    f.products = aten::einsum(t, f.read, "bclhn", f.states, "bchpn", "bclhp");
    const Tensor factor = by_position(t, f.from_start);
    f.outer = aten::mul(t, f.products, factor);
    const Tensor sum = aten::add(t, f.inner, f.outer);
    f.out = aten::contiguous(t, sum);
    return;
  }
  {
    const Tensor left = aten::unsqueeze(t, f.read, 4);
    const Tensor right = aten::unsqueeze(t, f.states, 2);
    f.products = aten::mul(t, left, right);
  }
  {
    const Tensor summed = aten::sum(t, f.products, 5);
    const Tensor factor = by_position(t, f.from_start);
    f.outer = aten::mul(t, summed, factor);
  }
  f.out = aten::add(t, f.inner, f.outer);
}

// D's part is added, and what stands behind the sequence goes.
void end_scan(Tape& t, const ChunkScanInputs& given, Frame& f) {
  f.out =
      aten::reshape(t, f.out, Shape{f.batch, f.chunks * f.chunk, given.x.size(2), given.x.size(3)});
  if (f.residual.defined()) f.out = aten::add(t, f.out, f.residual);
  if (f.missing > 0) f.out = aten::slice(t, f.out, 1, given.x.size(1));
}

}  // namespace

Tensor mamba_chunk_scan(Tape& t, const ChunkScanInputs& given) {
  ZP_CHECK(given.written.size(2) > 0, "groups of some size");
  Frame f;
  f.batch = given.x.size(0);
  f.chunk = given.chunk;
  f.multiplies = given.multiplies;
  f.missing = (f.chunk - given.x.size(1) % f.chunk) % f.chunk;
  f.chunks = (given.x.size(1) + f.missing) / f.chunk;
  prepare_scan(t, given, f);
  scan_within(t, f);
  pass_states(t, f);
  read_states(t, f);
  end_scan(t, given, f);
  return f.out;
}

}  // namespace zeroplan::hf
