#include "model/implementations/embedded_layers.hpp"

#include <cmath>
#include <string>

#include "base/check.hpp"
#include "base/diagnostic.hpp"

namespace zeroplan::embedded {

namespace {

struct LinearSizes {
  std::int64_t out = 0, in = 0;
};

LinearSizes sizes_of(const BlockBuilder& b, KernelOperand weight, WeightLayout layout) {
  const std::vector<std::int64_t>& shape = b.shape_of(weight);
  return layout == WeightLayout::out_in ? LinearSizes{shape[0], shape[1]}
                                        : LinearSizes{shape[1], shape[0]};
}

KernelCall linear_call(Kernel kernel, const LinearSizes& sizes, WeightLayout layout) {
  KernelCall call;
  call.kernel = kernel;
  call.columns = sizes.out;
  call.inner = sizes.in;
  call.transposed = layout == WeightLayout::in_out;
  return call;
}

bool is_layer_norm(const BlockBuilder& b) { return b.shape().norm == NormKind::layer_norm; }

KernelCall attention_call(BlockBuilder& b, Kernel kernel, const Heads& heads) {
  const TransformerShape& shape = b.shape();
  KernelCall call;
  call.kernel = kernel;
  call.heads = shape.heads;
  call.kv_heads = shape.kv_heads;
  call.head_dim = shape.head_dim;
  call.layout = heads.layout;
  call.scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  call.causal = shape.kind == ModelKind::decoder;
  call.alibi = shape.position == PositionKind::alibi;
  return call;
}

KernelCall elementwise(Kernel kernel, std::int64_t columns, std::vector<KernelOperand> operands) {
  KernelCall call;
  call.kernel = kernel;
  call.columns = columns;
  call.operands = std::move(operands);
  return call;
}

}  // namespace

// --- linear layers

KernelOperand linear(
    BlockBuilder& b, std::string_view module, KernelOperand x, Keep keep, WeightLayout layout) {
  const auto scope = b.module(module);
  const LinearWeights weights{b.parameter("weight"), b.parameter("bias")};
  const KernelOperand y = b.tensor(b.rows() * sizes_of(b, weights.weight, layout).out, keep);
  linear_product(b, weights, {.y = y, .x = x, .layout = layout});
  return y;
}

void linear_product(BlockBuilder& b, const LinearWeights& weights, const LinearForward& given) {
  KernelCall call =
      linear_call(Kernel::linear_forward, sizes_of(b, weights.weight, given.layout), given.layout);
  call.operands = {given.y, given.x, weights.weight, weights.bias};
  call.rows = given.rows;
  b.run(std::move(call));
}

KernelOperand linear_backward(BlockBuilder& b,
                              std::string_view module,
                              const LinearBackward& given) {
  const auto scope = b.module(module);
  return linear_gradients(b, {b.parameter("weight"), b.parameter("bias")}, given);
}

KernelOperand linear_gradients(BlockBuilder& b,
                               const LinearWeights& weights,
                               const LinearBackward& given) {
  const LinearSizes sizes = sizes_of(b, weights.weight, given.layout);
  KernelCall of_weight = linear_call(Kernel::linear_backward_weight, sizes, given.layout);
  of_weight.operands = {b.gradient_of(weights.weight), given.d_y, given.x};
  of_weight.rows = given.rows;
  of_weight.accumulate = given.add_weights;
  b.run(std::move(of_weight));
  if (weights.bias.from != KernelOperand::From::none) {
    KernelCall of_bias = linear_call(Kernel::linear_backward_bias, sizes, given.layout);
    of_bias.operands = {b.gradient_of(weights.bias), given.d_y};
    of_bias.rows = given.rows;
    of_bias.accumulate = given.add_weights;
    b.run(std::move(of_bias));
  }
  const bool fresh = given.d_x.from == KernelOperand::From::none;
  const KernelOperand d_x = fresh ? b.tensor(b.rows() * sizes.in) : given.d_x;
  KernelCall of_input = linear_call(Kernel::linear_backward_input, sizes, given.layout);
  of_input.operands = {d_x, given.d_y, weights.weight};
  of_input.rows = given.rows;
  of_input.accumulate = given.accumulate;
  b.run(std::move(of_input));
  return d_x;
}

// --- norms

Norm norm(BlockBuilder& b, std::string_view module, KernelOperand x) {
  const auto scope = b.module(module);
  const std::int64_t hidden = b.shape().hidden;
  Norm norm;
  norm.x = x;
  norm.y = b.tensor(b.rows() * hidden);
  if (is_layer_norm(b)) norm.mean = b.statistic(b.rows());
  norm.rstd = b.statistic(b.rows());
  KernelCall call;
  call.columns = hidden;
  call.epsilon = b.shape().norm_epsilon;
  if (is_layer_norm(b)) {
    call.kernel = Kernel::layer_norm_forward;
    call.operands = {norm.y, norm.mean, norm.rstd, x, b.parameter("weight"), b.parameter("bias")};
  } else {
    call.kernel = Kernel::rms_norm_forward;
    call.operands = {norm.y, norm.rstd, x, b.parameter("weight")};
  }
  b.run(std::move(call));
  return norm;
}

KernelOperand norm_backward(BlockBuilder& b,
                            std::string_view module,
                            const Norm& saved,
                            KernelOperand d_y,
                            KernelOperand onto) {
  const auto scope = b.module(module);
  const std::int64_t hidden = b.shape().hidden;
  const bool fresh = onto.from == KernelOperand::From::none;
  const KernelOperand d_x = fresh ? b.tensor(b.rows() * hidden) : onto;
  const KernelOperand weight = b.parameter("weight");
  KernelCall call;
  call.columns = hidden;
  call.epsilon = b.shape().norm_epsilon;
  call.accumulate = !fresh;
  if (is_layer_norm(b)) {
    const KernelOperand bias = b.parameter("bias");
    call.kernel = Kernel::layer_norm_backward;
    call.operands = {d_x,
                     b.gradient_of(weight),
                     b.gradient_of(bias),
                     d_y,
                     saved.x,
                     saved.mean,
                     saved.rstd,
                     weight};
  } else {
    call.kernel = Kernel::rms_norm_backward;
    call.operands = {d_x, b.gradient_of(weight), d_y, saved.x, saved.rstd, weight};
  }
  b.run(std::move(call));
  return d_x;
}

// --- attention

AttentionOutput attention(BlockBuilder& b, const Heads& heads) {
  const TransformerShape& shape = b.shape();
  AttentionOutput result;
  result.out = b.tensor(b.rows() * shape.heads * shape.head_dim, Keep::selective);
  result.lse = b.statistic(b.rows() * shape.heads, Keep::selective);
  KernelCall call = attention_call(b, Kernel::attention_forward, heads);
  call.operands = {result.out, result.lse, heads.q, heads.k, heads.v};
  b.run(std::move(call));
  return result;
}

Heads attention_backward(BlockBuilder& b,
                         const Heads& heads,
                         const AttentionOutput& saved,
                         KernelOperand d_out) {
  const TransformerShape& shape = b.shape();
  Heads gradients;
  gradients.layout = heads.layout;
  if (heads.layout.fused()) {
    gradients.q = gradients.k = gradients.v = b.tensor(b.rows() * heads.layout.row_stride);
  } else {
    gradients.q = b.tensor(b.rows() * shape.heads * shape.head_dim);
    gradients.k = b.tensor(b.rows() * shape.kv_heads * shape.head_dim);
    gradients.v = b.tensor(b.rows() * shape.kv_heads * shape.head_dim);
  }
  const KernelOperand delta = b.workspace(b.rows() * shape.heads);
  KernelCall call = attention_call(b, Kernel::attention_backward, heads);
  call.operands = {gradients.q,
                   gradients.k,
                   gradients.v,
                   delta,
                   d_out,
                   saved.out,
                   saved.lse,
                   heads.q,
                   heads.k,
                   heads.v};
  b.run(std::move(call));
  return gradients;
}

void rotary(BlockBuilder& b, Kernel kernel, const Heads& heads) {
  const TransformerShape& shape = b.shape();
  KernelCall call;
  call.kernel = kernel;
  call.heads = shape.heads;
  call.kv_heads = shape.kv_heads;
  call.head_dim = shape.head_dim;
  call.rotary_base = shape.rotary_base;
  call.operands = {heads.q, heads.k};
  b.run(std::move(call));
}

// --- elementwise

KernelOperand gelu(BlockBuilder& b, KernelOperand x, std::int64_t columns) {
  const KernelOperand y = b.tensor(b.rows() * columns);
  KernelCall call = elementwise(Kernel::gelu_forward, columns, {y, x});
  call.exact_gelu = b.shape().activation == ActivationFunction::gelu;
  b.run(std::move(call));
  return y;
}

void gelu_backward_in_place(BlockBuilder& b,
                            KernelOperand x,
                            KernelOperand d_y,
                            std::int64_t columns) {
  KernelCall call = elementwise(Kernel::gelu_backward, columns, {d_y, d_y, x});
  call.exact_gelu = b.shape().activation == ActivationFunction::gelu;
  b.run(std::move(call));
}

void add_to(BlockBuilder& b, KernelOperand a, KernelOperand other) {
  b.run(elementwise(Kernel::add, b.shape().hidden, {a, a, other}));
}

// --- the two ends

KernelOperand embedding(BlockBuilder& b, std::string_view module) {
  const auto scope = b.module(module);
  const KernelOperand table = b.parameter("weight");
  const KernelOperand out = b.tensor(b.rows() * b.shape().hidden);
  KernelCall call;
  call.kernel = Kernel::embedding_forward;
  call.columns = b.shape().hidden;
  call.inner = b.shape_of(table)[0];
  call.operands = {out, BlockBuilder::ids(), table};
  b.run(std::move(call));
  return out;
}

// Outside its module: the table itself is not read, so nobody needs to gather it.
void embedding_backward(BlockBuilder& b, std::string_view module, KernelOperand d_out, bool tied) {
  const KernelOperand table = b.parameter_of_block(std::string(module) + ".weight");
  if (tied) b.tie(table, {.first = false, .last = true});
  KernelCall call;
  call.kernel = Kernel::embedding_backward;
  call.columns = b.shape().hidden;
  call.inner = b.shape_of(table)[0];
  call.operands = {b.gradient_of(table), BlockBuilder::ids(), d_out};
  call.accumulate = tied;
  b.run(std::move(call));
}

void add_positions(BlockBuilder& b, std::string_view module, KernelOperand x, std::int64_t period) {
  const auto scope = b.module(module);
  const KernelOperand table = b.parameter("weight");
  KernelCall call;
  call.kernel = Kernel::position_forward;
  call.columns = b.shape().hidden;
  call.sequence = period;
  call.inner = b.shape_of(table)[0];
  call.operands = {x, table};
  b.run(std::move(call));
}

void positions_backward(BlockBuilder& b,
                        std::string_view module,
                        KernelOperand d_x,
                        std::int64_t period) {
  const KernelOperand table = b.parameter_of_block(std::string(module) + ".weight");
  KernelCall call;
  call.kernel = Kernel::position_backward;
  call.columns = b.shape().hidden;
  call.sequence = period;
  call.inner = b.shape_of(table)[0];
  call.operands = {b.gradient_of(table), d_x};
  b.run(std::move(call));
}

bool is_gelu(const TransformerShape& shape) {
  switch (shape.activation) {
    case ActivationFunction::gelu:
    case ActivationFunction::gelu_new:
    case ActivationFunction::gelu_tanh:
      return true;
    default:
      return false;
  }
}

void refuse(const hf::Context& context, const Phrase& what) {
  throw InputError(Diagnostic{"",
                              "/workload/engine",
                              "a model that the embedded runtime trains",
                              phrase("{}: {}", context.model.model_type, what),
                              ""});
}

void note_dropout(GraphAssembler& assembler, const hf::Context& context) {
  const TransformerShape& shape = context.shape();
  if (shape.hidden_dropout + shape.attention_dropout + shape.embedding_dropout > 0.0) {
    assembler.assume("the embedded runtime trains without dropout.");
  }
}

}  // namespace zeroplan::embedded
