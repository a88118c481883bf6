#include "model/implementations/hf_common.hpp"

#include <string>
#include <utility>

#include "base/check.hpp"

namespace zeroplan::hf {

namespace {

Tensor plain_linear(
    Tape& t, const Context& c, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (t.is_quantized(weight)) return aten::linear_4bit(t, x, weight, bias, c.options.weights);
  return c.options.zero3_linear ? aten::zero3_linear(t, x, weight, bias)
                                : aten::linear(t, x, weight, bias);
}

// pytorch_utils.Conv1D: addmm(bias, x.view(-1, in), weight) with an (in, out) weight.
Tensor plain_conv1d(Tape& t, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor rows = aten::view(t, x, Shape{x.size(0) * x.size(1), x.size(2)});
  const Tensor out = aten::addmm(t, bias, rows, weight);
  return aten::view(t, out, Shape{x.size(0), x.size(1), weight.size(1)});
}

// modeling_falcon.FalconLinear: no F.linear, so stage 3 does not replace it.
Tensor plain_matmul(
    Tape& t, const Context& c, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (t.is_quantized(weight)) return aten::linear_4bit(t, x, weight, bias, c.options.weights);
  const Tensor out = aten::linear(t, x, weight, Tensor());
  return bias.defined() ? aten::add(t, out, bias) : out;
}

enum class LayerKind { linear, matmul, conv1d };

Tensor layer_call(Tape& t, const Context& c, LayerKind kind, const Tensor& x) {
  const Tensor weight = t.module_parameter("weight");
  const Tensor bias = t.module_parameter("bias");
  switch (kind) {
    case LayerKind::linear:
      return plain_linear(t, c, x, weight, bias);
    case LayerKind::matmul:
      return plain_matmul(t, c, x, weight, bias);
    case LayerKind::conv1d:
      return plain_conv1d(t, x, weight, bias);
  }
  return {};
}

// peft.tuners.lora.Linear.forward:
//   result = base_layer(x); x = x.to(lora_A.weight.dtype)
//   result = result + lora_B(lora_A(dropout(x))) * scaling
//   result = result.to(dtype of base_layer's)
// and peft.tuners.lora.bnb.Linear4bit.forward, which clones the base layer's
// result, converts nothing under autocast, and without it the product instead of the sum. The frame
// holds the cast x until it returns.
Tensor lora_call(Tape& t, const Context& c, LayerKind kind, const Tensor& x) {
  const auto module = [&](std::string_view name, LayerKind inner, const Tensor& input) {
    Tensor in = input;
    const auto scope = t.enter(name, in);
    return t.leave(scope, layer_call(t, c, inner, in));
  };
  const LoraOptions settings = c.options.lora.value_or(LoraOptions{});
  const bool four_bits = t.is_quantized(t.module_parameter("base_layer.weight"));
  const bool converts = !four_bits || !t.autocast();
  Tensor result = module("base_layer", kind, x);
  const DType dtype = result.dtype();
  if (four_bits) result = aten::clone(t, result);
  const Tensor cast = converts ? aten::to(t, x, settings.dtype.value_or(t.dtype())) : x;
  Tensor adapted = aten::dropout(t, cast, settings.dropout);
  adapted = module("lora_A.default", LayerKind::linear, adapted);
  adapted = module("lora_B.default", LayerKind::linear, adapted);
  adapted = aten::scale(t, adapted);
  if (four_bits && converts) adapted = aten::to(t, adapted, dtype);
  // The scaled product is a temporary of the expression, which dies before `result` is bound again.
  Tensor sum = aten::add(t, result, adapted);
  adapted = Tensor();
  result = std::move(sum);
  return aten::to(t, result, dtype);
}

// The same under disable_adapter(): `if self.disable_adapters: result = self.base_layer(x)`.
Tensor base_layer(Tape& t, const Context& c, LayerKind kind, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter("base_layer", in);
  return t.leave(scope, layer_call(t, c, kind, in));
}

Tensor layer_module(
    Tape& t, const Context& c, LayerKind kind, std::string_view module, const Tensor& x) {
  Tensor in = x;
  const bool adapted = t.has_parameter(module, "lora_A.default.weight");
  const auto scope = t.enter(module, in);
  if (adapted && c.options.adapters_off) return t.leave(scope, base_layer(t, c, kind, in));
  const Tensor out = adapted ? lora_call(t, c, kind, in) : layer_call(t, c, kind, in);
  return t.leave(scope, out);
}

}  // namespace

Tensor linear(Tape& t, const Context& c, std::string_view module, const Tensor& x) {
  if (c.options.tensor_parallel > 1) {
    const TensorShard shard = tensor_shard(c.model, module);
    if (shard != TensorShard::whole) return cut_linear(t, c, shard, module, x);
  }
  return layer_module(t, c, LayerKind::linear, module, x);
}

Tensor matmul_linear(Tape& t, const Context& c, std::string_view module, const Tensor& x) {
  return layer_module(t, c, LayerKind::matmul, module, x);
}

Tensor conv1d(Tape& t, const Context& c, std::string_view module, const Tensor& x) {
  return layer_module(t, c, LayerKind::conv1d, module, x);
}

Tensor layer_norm(Tape& t, std::string_view module, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  const Tensor out =
      aten::layer_norm(t, in, t.module_parameter("weight"), t.module_parameter("bias"));
  return t.leave(scope, out);
}

namespace {

// x * rsqrt(mean(x^2) + eps) in fp32. Both are local variables of a norm's forward(), which holds
// them until it returns.
struct OverRootMeanSquare {
  Tensor hidden, variance;
};
OverRootMeanSquare over_root_mean_square(Tape& t, const Tensor& x) {
  Tensor hidden = aten::to(t, x, DType::fp32);
  Tensor variance = aten::pow(t, hidden, 2);
  variance = aten::mean_last(t, variance);
  Tensor factor = aten::shift(t, variance);
  factor = aten::rsqrt(t, factor);
  hidden = aten::mul(t, hidden, factor);
  return {std::move(hidden), std::move(variance)};
}

}  // namespace

// LlamaRMSNorm.forward
Tensor rms_norm(Tape& t, std::string_view module, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  OverRootMeanSquare locals = over_root_mean_square(t, in);
  Tensor out;
  {
    const Tensor normed = aten::to(t, locals.hidden, x.dtype());
    out = aten::mul(t, t.module_parameter("weight"), normed);
  }
  locals.hidden = Tensor();
  locals.variance = Tensor();
  return t.leave(scope, out);
}

Tensor rms_norm_weighed_in_fp32(Tape& t, std::string_view module, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  OverRootMeanSquare locals = over_root_mean_square(t, in);
  Tensor out;
  {
    const Tensor product = aten::mul(t, t.module_parameter("weight"), locals.hidden);
    out = aten::to(t, product, x.dtype());
  }
  locals.hidden = Tensor();
  locals.variance = Tensor();
  return t.leave(scope, out);
}

// GemmaRMSNorm.forward
Tensor gemma_norm(Tape& t, std::string_view module, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  Tensor hidden = aten::to(t, in, DType::fp32);
  Tensor factor = aten::pow(t, hidden, 2);
  factor = aten::mean_last(t, factor);
  factor = aten::shift(t, factor);
  factor = aten::rsqrt(t, factor);
  hidden = aten::mul(t, hidden, factor);
  factor = Tensor();
  Tensor weight = aten::to(t, t.module_parameter("weight"), DType::fp32);
  weight = aten::shift(t, weight);
  hidden = aten::mul(t, hidden, weight);
  return t.leave(scope, aten::to(t, hidden, x.dtype()));
}

namespace {

// activations.NewGELUActivation: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
Tensor gelu_new(Tape& t, const Tensor& x) {
  const Tensor half = aten::scale(t, x);
  Tensor inner = aten::pow(t, x, 3);
  inner = aten::scale(t, inner);
  inner = aten::add(t, x, inner);
  inner = aten::scale(t, inner);
  inner = aten::tanh(t, inner);
  inner = aten::shift(t, inner);
  return aten::mul(t, half, inner);
}

// modeling_bloom.bloom_gelu_back: tanh again, then
//   0.5 x ((1 - tanh^2) (a + b x^2)) + 0.5 (1 + tanh), times the gradient.
Tensor bloom_gelu_tanh(Tape& t, const Tensor& x) {
  Tensor inner;
  {
    const Tensor left = aten::scale(t, x);  // 0.79788456 * x
    Tensor right = aten::scale(t, x);       // 0.044715 * x
    right = aten::mul(t, right, x);
    right = aten::shift(t, right);
    inner = aten::mul(t, left, right);
  }
  return aten::tanh(t, inner);
}

Tensor bloom_gelu_backward(Tape& t, const Tensor& x, const Tensor& gradient) {
  const Tensor tanh_out = bloom_gelu_tanh(t, x);
  const Tensor half = aten::scale(t, x);
  Tensor left = aten::mul(t, tanh_out, tanh_out);
  left = aten::shift(t, left, "rsub");
  Tensor right = aten::scale(t, x);
  right = aten::mul(t, right, x);
  right = aten::shift(t, right);
  Tensor slope = aten::mul(t, left, right);
  left = right = Tensor();
  slope = aten::mul(t, half, slope);
  Tensor rest = aten::shift(t, tanh_out);
  rest = aten::scale(t, rest);
  const Tensor sum = aten::add(t, slope, rest);
  slope = rest = Tensor();
  return aten::mul(t, sum, gradient);
}

}  // namespace

Tensor bloom_gelu(Tape& t, const Tensor& x) {
  const bool trains = t.trains({&x});
  Tensor saved;
  if (trains) saved = t.save(x);
  const Tensor inside = x.detached();
  const Tensor half = aten::scale(t, inside);
  Tensor rest = bloom_gelu_tanh(t, inside);
  rest = aten::shift(t, rest);
  Tensor out = aten::mul(t, half, rest);
  if (trains) {
    t.record({&out}, {&x}, [saved](Backward& b) {
      b.give(0, bloom_gelu_backward(b.tape, saved, b.gradient()));
    });
  }
  return out;
}

Tensor activation(Tape& t, ActivationFunction function, const Tensor& x) {
  switch (function) {
    case ActivationFunction::gelu:
    case ActivationFunction::gelu_tanh:
      return aten::gelu(t, x);
    case ActivationFunction::gelu_new:
      return gelu_new(t, x);
    case ActivationFunction::quick_gelu: {
      // input * torch.sigmoid(1.702 * input)
      Tensor gate = aten::scale(t, x);
      gate = aten::sigmoid(t, gate);
      return aten::mul(t, x, gate);
    }
    case ActivationFunction::silu:
      return aten::silu(t, x);
    case ActivationFunction::relu:
      return aten::relu(t, x);
  }
  return {};
}

Tensor dropout(Tape& t, std::string_view module, const Tensor& x, double probability) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  return t.leave(scope, aten::dropout(t, in, probability));
}

// --- embedding and head ---

// F.linear hands out a view of its weight's gradient, the transpose of a product; DeepSpeed's own
// linear and the fused loss hand out the tensor itself.
bool head_gradient_is_owned(const Context& c) {
  return c.options.zero3_linear || c.options.fused_loss;
}

bool is_tied_here(const Context& c) {
  return c.shape().tied_embeddings && c.options.stage.stages == 1;
}

void keep_logits(GraphAssembler& assembler, const Context& c) {
  if (!c.options.stage.is_last()) return;
  assembler.keep_outputs(Elements::of(c.batch * c.sequence * c.shape().vocabulary) *
                         c.compute_dtype());
}

void hold_embeddings(Tape& t, const Context& c, const Tensor& embeddings) {
  if (c.options.stage.stages > 1) return;
  t.hold_in_frame(static_cast<std::int32_t>(Slot::embeddings), embeddings);
}

// First by the model, which holds what it multiplies; then by the embedding's own class.
Tensor scaled_embeddings(Tape& t, const Context& c, const Tensor& embeddings) {
  const bool by_class = c.acts(ReleaseRule::gemma_scales_in_embedding);
  if (!by_class) hold_embeddings(t, c, embeddings);
  const Tensor scaled = aten::scale(t, embeddings);
  if (by_class) hold_embeddings(t, c, scaled);
  return scaled;
}

bool asks_gradients_of_embeddings(const Context& c) {
  const bool asks = c.options.lora || c.acts(ReleaseRule::checkpointing_requires_gradient);
  return asks && c.options.checkpointing != ActivationCheckpointing::none;
}

Tensor token_embedding(Tape& t, const Context& c, std::string_view module) {
  const auto scope = t.enter(module);
  const Tensor weight = t.module_parameter("weight");
  if (c.shape().has_logits && is_tied_here(c)) {
    t.tie(weight, {.first = false, .last = true, .in_place = head_gradient_is_owned(c)});
  }
  Tensor out = aten::embedding(t, Shape{c.batch, c.sequence}, weight);
  if (asks_gradients_of_embeddings(c)) t.require_grad(out);
  return t.leave(scope, out);
}

void add_causal_head(GraphAssembler& assembler,
                     const Context& c,
                     const std::string& block,
                     std::string_view final_norm,
                     const CausalHead& head) {
  assembler.add(block, "", [&](Tape& t) {
    Tensor hidden = t.input(c.hidden_shape());
    hidden = layer_norm(t, final_norm, hidden);
    return causal_loss(t, c, head, hidden);
  });
}

}  // namespace zeroplan::hf
