#include "model/implementations/hf_mamba_ssm.hpp"

#include <utility>
#include <vector>

#include "base/check.hpp"

namespace zeroplan::hf {

namespace {

// Sizes of the kernels' grids.
struct ScanShape {
  std::int64_t batch = 0, sequence = 0, chunk = 0, chunks = 0, groups = 0;
  std::int64_t heads = 0, inner = 0, states = 0, channels = 0;
  DType dtype = DType::bf16;

  Shape numbers() const { return {batch, heads, chunks, chunk}; }
  Shape all_states() const { return {batch, chunks, heads, inner / heads, states}; }
  Shape scores() const { return {batch, chunks, groups, chunk, chunk}; }
  Shape rows(std::int64_t width) const { return {batch, sequence, width}; }
  Shape of_groups() const { return {batch, sequence, groups, states}; }
  // A product for each chunk of each head.
  MatrixProduct product(std::int64_t columns, std::int64_t depth) const {
    return {batch * heads * chunks, chunk, columns, depth, dtype};
  }
};

ScanShape scan_shape(const SplitScanInputs& given) {
  ScanShape f;
  f.batch = given.projected.size(0);
  f.sequence = given.projected.size(1);
  f.chunk = given.chunk;
  f.chunks = (f.sequence + f.chunk - 1) / f.chunk;
  f.groups = given.groups;
  f.heads = given.residual.size(0);
  f.channels = given.conv_weight.size(0);
  f.inner = given.projected.size(2) - f.channels - f.heads;
  ZP_CHECK(f.groups > 0 && f.heads > 0 && f.inner > 0, "groups, heads and widths of some size");
  f.states = (f.channels - f.inner) / f.groups / 2;
  f.dtype = given.projected.dtype();
  return f;
}

Tensor made(Tape& t, std::string_view name, const Shape& shape, DType dtype, Bytes read) {
  Tensor out = t.empty(shape, dtype);
  t.launch({.name = name, .traffic = read + out.bytes()});
  return out;
}

// One Triton kernel that multiplies.
Tensor multiplied(Tape& t,
                  std::string_view name,
                  const Shape& shape,
                  DType dtype,
                  Bytes read,
                  const MatrixProduct& product) {
  Tensor out = t.empty(shape, dtype);
  t.launch({.name = name,
            .kind = OpKind::matmul,
            .traffic = read + out.bytes(),
            .library = Library::own},
           product);
  return out;
}

// cuBLAS: (tokens, depth) x (depth, columns), or the sum over tokens for a weight.
Tensor dense(Tape& t, const Shape& shape, DType dtype, const MatrixProduct& product) {
  Tensor out = t.empty(shape, dtype);
  t.launch({.name = "mm",
            .kind = OpKind::matmul,
            .traffic = out.bytes() + 1_elements * ((product.m + product.n) * product.k) * dtype},
           product);
  return out;
}

Tensor convolved(Tape& t, const ScanShape& f, Bytes projected) {
  return made(t, "causal_conv1d_fwd", f.rows(f.channels), f.dtype, projected);
}

// The scan's inputs by chunks: steps and sums of decays, states before each chunk, and scores of
// positions within it.
struct Scan {
  Tensor dt, cumulated, states, last, scores;
};

// _mamba_chunk_scan_combined_fwd up to its output, and the same again in backward; `passed`: the
// dtype of the states that go from chunk to chunk.
Scan scan_of(Tape& t, const ScanShape& f, Bytes conv, DType passed) {
  Scan scan;
  scan.cumulated = t.empty(f.numbers(), DType::fp32);
  scan.dt = made(t, "chunk_cumsum_fwd", f.numbers(), DType::fp32, scan.cumulated.bytes() * 2);
  {
    const std::int64_t width = f.inner / f.heads;
    const Tensor added = multiplied(
        t, "chunk_state_fwd", f.all_states(), DType::fp32, conv, f.product(width, f.states));
    scan.last = t.empty(Shape{f.batch, f.heads, width * f.states}, DType::fp32);
    scan.states = made(t, "state_passing_fwd", f.all_states(), passed, added.bytes());
  }
  scan.scores = multiplied(t,
                           "bmm_chunk_fwd",
                           f.scores(),
                           DType::fp32,
                           conv,
                           {f.batch * f.chunks * f.groups, f.chunk, f.chunk, f.states, f.dtype});
  return scan;
}

// ctx.save_for_backward: what goes in, the scan's output before the gate and the norm, and the
// norm's factors.
struct ScanSaved {
  Tensor projected, out, decay, factors;
};

Tensor scan_forward(Tape& t, const ScanShape& f, const SplitScanInputs& given, ScanSaved& saved) {
  const Bytes projected = given.projected.bytes();
  const Tensor conv = convolved(t, f, projected);
  Tensor gated, normed;
  Scan scan;
  {
    scan = scan_of(t, f, conv.bytes(), f.dtype);
    saved.out = multiplied(t,
                           "chunk_scan_fwd",
                           f.rows(f.inner),
                           f.dtype,
                           conv.bytes() + scan.states.bytes() + scan.scores.bytes(),
                           f.product(f.inner / f.heads, f.chunk + f.states));
    if (!given.norm.defined()) gated = t.empty(f.rows(f.inner), f.dtype);
    scan.scores = Tensor();
  }
  if (given.norm.defined()) {
    normed = made(t, "layer_norm_fwd", f.rows(f.inner), f.dtype, saved.out.bytes() * 2);
    saved.factors = t.empty(Shape{f.groups * f.batch * f.sequence}, DType::fp32);
  }
  const std::int64_t hidden = given.out_weight.size(0);
  return dense(t, f.rows(hidden), f.dtype, {1, f.batch * f.sequence, hidden, f.inner, f.dtype});
}

// Gradients of the scan's kernels, written where x, B and C stand in `inner` (_mamba_chunk_scan_
// combined_bwd); small sums for each head are left out.
void scan_backward(Tape& t, const ScanShape& f, Bytes conv, const Tensor& gradient) {
  const Tensor steps =
      made(t, "clone", Shape{f.batch, f.sequence, f.heads}, f.dtype, gradient.bytes() / f.inner);
  Scan scan = scan_of(t, f, conv, DType::fp32);
  const std::int64_t width = f.inner / f.heads;
  const Bytes read = conv + gradient.bytes();
  Tensor states = multiplied(
      t, "chunk_scan_bwd_dstates", f.all_states(), DType::fp32, read, f.product(width, f.states));
  {
    const Tensor passed = t.empty(f.all_states(), f.dtype);
    const Tensor converted =
        made(t, "state_passing_bwd", f.all_states(), f.dtype, states.bytes() * 2);
    states = passed;
    scan.states = converted;
  }
  const Tensor dt = t.empty(f.numbers(), DType::fp32);
  t.launch({.name = "zeros", .kind = OpKind::fill, .traffic = dt.bytes()});
  t.launch({.name = "chunk_scan_chunk_state_bwd_dx",
            .kind = OpKind::matmul,
            .traffic = read * 2 + states.bytes() + scan.scores.bytes(),
            .library = Library::own},
           f.product(width, f.chunk + f.states));
  std::vector<Tensor> sums;
  for (const std::string_view name : {"chunk_state_bwd_db", "chunk_scan_bwd_dC"}) {
    const Tensor parts = multiplied(
        t, name, f.of_groups(), DType::fp32, read + states.bytes(), f.product(f.states, width));
    sums.push_back(t.empty(f.numbers(), DType::fp32));
    sums.push_back(made(t, "sum", f.of_groups(), DType::fp32, parts.bytes()));
  }
  Tensor scores =
      multiplied(t, "chunk_scan_bwd_dcb", f.scores(), DType::fp32, read, f.product(f.chunk, width));
  scores = made(t, "sum", f.scores(), DType::fp32, scores.bytes());
  const MatrixProduct of_scores{f.batch * f.chunks * f.groups, f.chunk, f.states, f.chunk, f.dtype};
  for (int i = 0; i < 2; ++i) {
    t.launch({.name = "bmm_chunk_bwd",
              .kind = OpKind::matmul,
              .traffic = scores.bytes() + conv,
              .library = Library::own},
             of_scores);
  }
  t.launch({.name = "chunk_scan_bwd_ddAcs_stable", .traffic = read + scores.bytes()});
  t.launch({.name = "chunk_cumsum_bwd", .traffic = dt.bytes() * 4, .kernels = 4});
}

// Sizes of the parameters, for their gradients.
struct ScanParameters {
  bool normed = false;
  std::int64_t hidden = 0;
  std::vector<Shape> shapes;  // by place among the inputs
  std::vector<DType> dtypes;
};

void split_scan_backward(Backward& b,
                         const ScanShape& f,
                         const ScanSaved& saved,
                         const ScanParameters& parameters) {
  Tape& t = b.tape;
  const std::int64_t tokens = f.batch * f.sequence;
  const Tensor recomputed = t.empty(f.rows(f.inner), f.dtype);
  const Tensor conv = convolved(t, f, saved.projected.bytes());
  Tensor projected = t.empty(saved.projected.shape().as_contiguous(), f.dtype);
  const Tensor of_conv = t.empty(f.rows(f.channels), f.dtype);
  const Tensor out =
      dense(t, f.rows(f.inner), f.dtype, {1, tokens, f.inner, parameters.hidden, f.dtype});
  Tensor gradient, again;
  if (!parameters.normed) again = t.empty(f.rows(f.inner), f.dtype);
  gradient = made(t,
                  parameters.normed ? "layer_norm_bwd" : "chunk_scan_bwd_dz",
                  f.rows(f.inner),
                  f.dtype,
                  out.bytes() * 5);
  scan_backward(t, f, conv.bytes(), gradient);
  constexpr std::size_t kOutWeight = 7;
  for (std::size_t i = 1; i < parameters.shapes.size(); ++i) {
    if (!b.needs(i)) continue;
    Tensor of_parameter =
        i == kOutWeight
            ? dense(t,
                    parameters.shapes[i],
                    f.dtype,
                    {1, parameters.hidden, f.inner, tokens, f.dtype})
            : made(t, "sum", parameters.shapes[i].as_contiguous(), parameters.dtypes[i], Bytes());
    b.give(i, std::move(of_parameter));
  }
  t.launch({.name = "causal_conv1d_bwd", .traffic = conv.bytes() * 3});
  if (b.needs(0)) b.give(0, std::move(projected));
}

}  // namespace

const char* who_scans(LinearAttention linear_attention) {
  return linear_attention == LinearAttention::mamba_ssm
             ? "State-space layers run mamba_ssm's and causal_conv1d's kernels, as their source "
               "says: no rehearsal has run them."
             : "State-space layers run PyTorch's own operations: mamba_ssm and causal_conv1d are "
               "not installed.";
}

Tensor mamba_split_scan(Tape& t, const SplitScanInputs& given) {
  const ScanShape f = scan_shape(given);
  const std::vector<const Tensor*> inputs = {&given.projected,
                                             &given.conv_weight,
                                             &given.conv_bias,
                                             &given.dt_bias,
                                             &given.decay,
                                             &given.residual,
                                             &given.norm,
                                             &given.out_weight,
                                             &given.out_bias};
  bool trains = false;
  ScanParameters parameters{given.norm.defined(), given.out_weight.size(0), {}, {}};
  for (const Tensor* input : inputs) {
    trains = trains || (input->defined() && t.trains({input}));
    parameters.shapes.push_back(input->defined() ? input->shape() : Shape());
    parameters.dtypes.push_back(input->defined() ? input->dtype() : f.dtype);
  }
  ScanSaved saved;
  Tensor out = scan_forward(t, f, given, saved);
  if (!trains) return out;
  saved.projected = t.save(given.projected);
  saved.decay = t.save(given.decay);
  saved.out = t.save(saved.out);
  if (saved.factors.defined()) saved.factors = t.save(saved.factors);
  t.record({&out}, inputs, [f, saved, parameters](Backward& b) {
    split_scan_backward(b, f, saved, parameters);
  });
  return out;
}

}  // namespace zeroplan::hf
