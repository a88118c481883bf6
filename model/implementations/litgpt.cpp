// GPT as Lightning's litgpt writes it: one class for all families, weights and activations in 16
// bits ("bf16-true"), RMSNorm and rotation in fp32, adapters as its own modules, the head and the
// cross entropy in chunks of 128 positions where adapters are trained.
//
// Sources (Lightning-AI/litgpt, October 2023 and after): model.py GPT.forward, Block.forward,
// CausalSelfAttention.forward, apply_rope; rmsnorm.py RMSNorm.forward (in fp32 since pull request
// 606); lora.py LoRALinear.forward, LoRAQKVLinear.forward, zero_pad, conv1d; utils.py
// chunked_cross_entropy; finetune/lora.py, finetune/full.py. lightning.fabric's HalfPrecision and
// BitsandbytesPrecision cast the model's output to fp32 (convert_output).
#include <algorithm>
#include <utility>
#include <vector>

#include "model/implementations/families.hpp"

namespace zeroplan::litgpt {

namespace {

using hf::Context;

constexpr double kLoraDropout = 0.05;     // finetune/lora.py lora_dropout
constexpr std::int64_t kHeadChunk = 128;  // lm_head_chunk_size

// nn.Linear, or what BitsandbytesPrecision puts in its place.
Tensor plain(Tape& t, const Context& c, std::string_view module, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  const Tensor weight = t.module_parameter("weight"), bias = t.module_parameter("bias");
  const Tensor out = t.is_quantized(weight)
                         ? aten::linear_4bit(t, in, weight, bias, c.options.weights)
                         : aten::linear(t, in, weight, bias);
  return t.leave(scope, out);
}

// LoRALinear.forward: pretrained + (dropout(x) @ A.T @ B.T) * scaling
Tensor any_linear(Tape& t, const Context& c, std::string_view module, const Tensor& x) {
  if (t.has_parameter(module, "weight")) return plain(t, c, module, x);
  const bool adapted = t.has_parameter(module, "lora_A");
  Tensor in = x;
  const auto scope = t.enter(module, in);
  const Tensor pretrained = plain(t, c, "linear", in);
  if (!adapted) return t.leave(scope, pretrained);
  Tensor lora = aten::dropout(t, in, kLoraDropout);
  lora = aten::linear(t, lora, t.module_parameter("lora_A"), Tensor());
  lora = aten::linear(t, lora, t.module_parameter("lora_B"), Tensor());
  lora = aten::scale(t, lora);
  return t.leave(scope, aten::add(t, pretrained, lora));
}

// F.conv1d with a group a part, kernel size 1: (b, parts * rank, s) x (width, rank, 1). The input
// is copied into the kernel's order; backward computes both gradients (ConvolutionBackward0).
Tensor grouped_conv1d(Tape& t, const Tensor& x, const Tensor& weight, std::int64_t parts) {
  const bool trains = t.trains({&x, &weight});
  const std::int64_t width = weight.size(0), rank = weight.size(1);
  const std::int64_t batch = x.size(0), positions = x.size(2);
  const MatrixProduct product{batch * parts, width / parts, positions, rank, x.dtype()};
  Tensor saved_x, saved_weight;
  if (trains) saved_x = t.save(x);
  if (trains) saved_weight = t.save(weight);
  Tensor out = t.empty(Shape{batch, width, positions}, x.dtype());
  t.launch({.name = "convolution",
            .kind = OpKind::matmul,
            .traffic = x.bytes() + weight.bytes() + out.bytes(),
            .library = Library::own},
           product);
  if (!trains) return out;
  t.record({&out}, {&x, &weight}, [saved_x, saved_weight, product](Backward& b) {
    Tape& tape = b.tape;
    const auto gradient_of = [&](const Tensor& input) {
      Tensor gradient = tape.empty(input.shape().as_contiguous(), input.dtype());
      tape.launch({.name = "convolution_backward",
                   .kind = OpKind::matmul,
                   .traffic = b.gradient().bytes() + input.bytes() * 2,
                   .library = Library::own},
                  product);
      return gradient;
    };
    if (b.needs(0)) b.give(0, gradient_of(saved_x));
    if (b.needs(1)) b.give(1, gradient_of(saved_weight));
  });
  return out;
}

// zero_pad: x.transpose(0, 1); zeros of the fused width; index_copy of x's columns, which keeps the
// index and x, for its formula ends in expand_as(source) (derivatives.yaml).
Tensor zero_pad(Tape& t, const Tensor& given, std::int64_t out_features) {
  const Tensor x = aten::transpose(t, given, 0, 1);
  const std::int64_t rows = x.size(0) * x.size(1), width = x.size(2);
  Tensor zeros = t.empty(Shape{rows, out_features}, x.dtype());
  t.launch({.name = "new_zeros", .kind = OpKind::fill, .traffic = zeros.bytes()});
  const Tensor index = t.empty(Shape{width}, DType::int64);
  t.launch({.name = "tensor", .kind = OpKind::copy, .traffic = index.bytes()});
  const Tensor source = aten::reshape(t, x, Shape{rows, width});
  const bool trains = t.trains({&source});
  Tensor saved_index, saved_source;
  if (trains) saved_index = t.save(index);
  if (trains) saved_source = t.save(source);
  Tensor padded = t.empty(Shape{rows, out_features}, x.dtype());
  t.launch({.name = "index_copy",
            .kind = OpKind::scatter,
            .traffic = zeros.bytes() * 2 + source.bytes() * 2,
            .kernels = 2});
  if (trains) {
    t.record({&padded}, {&source}, [saved_index, saved_source](Backward& b) {
      Tensor gradient = b.tape.empty(saved_source.shape().as_contiguous(), saved_source.dtype());
      b.tape.launch(
          {.name = "index_select", .kind = OpKind::gather, .traffic = gradient.bytes() * 2});
      b.give(0, std::move(gradient));
    });
  }
  zeros = Tensor();
  const Tensor back = aten::view(t, padded, Shape{x.size(0), x.size(1), out_features});
  return aten::transpose(t, back, 0, 1);
}

// LoRAQKVLinear.forward
Tensor fused_projection(Tape& t, const Context& c, const Tensor& x) {
  if (t.has_parameter("attn", "weight")) return plain(t, c, "attn", x);
  const bool adapted = t.has_parameter("attn", "lora_A");
  Tensor in = x;
  const auto scope = t.enter("attn", in);
  const Tensor pretrained = plain(t, c, "linear", in);
  if (!adapted) return t.leave(scope, pretrained);
  const Tensor a = t.module_parameter("lora_A");
  const Tensor b = t.module_parameter("lora_B");
  const std::int64_t parts = a.size(0) / b.size(1);
  Tensor lora = aten::dropout(t, in, kLoraDropout);
  lora = aten::linear(t, lora, a, Tensor());
  lora = aten::transpose(t, lora, 1, 2);
  lora = grouped_conv1d(t, lora, b, parts);
  lora = aten::transpose(t, lora, 1, 2);
  if (lora.size(2) != pretrained.size(2)) lora = zero_pad(t, lora, pretrained.size(2));
  lora = aten::scale(t, lora);
  return t.leave(scope, aten::add(t, pretrained, lora));
}

Tensor norm(Tape& t, const Context& c, std::string_view module, const Tensor& x) {
  if (c.shape().norm == NormKind::layer_norm) return hf::layer_norm(t, module, x);
  Tensor in = x;
  const auto scope = t.enter(module, in);
  Tensor wide = aten::to(t, in, DType::fp32);
  Tensor factor = aten::mul(t, wide, wide);
  factor = aten::mean_last(t, factor);
  factor = aten::shift(t, factor);
  factor = aten::rsqrt(t, factor);
  const Tensor normed = aten::mul(t, wide, factor);
  const Tensor scaled = aten::mul(t, t.module_parameter("weight"), normed);
  return t.leave(scope, aten::to(t, scaled, x.dtype()));
}

// torch.cat((apply_rope(x[..., :n]), x[..., n:]), dim=-1); the tables are buffers in fp32.
Tensor rotate(Tape& t, const Context& c, const Tensor& x) {
  const std::int64_t n = c.shape().rotary_dim, dim = x.size(-1);
  const Tensor table = t.buffer(Shape{c.sequence, n}, DType::fp32);
  Tensor roped;
  {
    const Tensor turning = aten::slice(t, x, -1, n);
    const Tensor first = aten::slice(t, turning, -1, n / 2);
    const Tensor second = aten::slice(t, turning, -1, n / 2);
    const Tensor negated = aten::neg(t, second);
    const Tensor rotated = aten::cat(t, {&negated, &first}, -1);
    const Tensor left = aten::mul(t, turning, table);
    const Tensor right = aten::mul(t, rotated, table);
    roped = aten::add(t, left, right);
    roped = aten::to(t, roped, x.dtype());
  }
  const Tensor rest = n == dim ? x.detached() : x;  // an empty rest gets no gradient
  const Tensor passing = aten::slice(t, rest, -1, dim - n);
  return aten::cat(t, {&roped, &passing}, -1);
}

// CausalSelfAttention.forward
Tensor attention(Tape& t, const Context& c, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter("attn", in);
  const TransformerShape& s = c.shape();
  const std::int64_t groups = s.kv_heads, queries = s.heads / s.kv_heads;
  Tensor qkv = fused_projection(t, c, in);
  qkv = aten::view(t, qkv, Shape{c.batch, c.sequence, groups, queries + 2, s.head_dim});
  qkv = aten::transpose(t, qkv, 1, 2);
  qkv = aten::transpose(t, qkv, 2, 3);  // (b, groups, queries + 2, s, d)
  std::vector<Tensor> parts = aten::split(t, qkv, {queries, 1, 1}, 2);
  Tensor q = parts[0], k = parts[1], v = parts[2];
  parts.clear();
  if (groups != 1 && queries > 1) {
    const Shape spread{c.batch, groups, queries, c.sequence, s.head_dim};
    k = aten::expand(t, k, spread);
    v = aten::expand(t, v, spread);
  }
  const auto heads = [&](const Tensor& part) {
    return aten::reshape(
        t, part, Shape{c.batch, part.size(1) * part.size(2), c.sequence, s.head_dim});
  };
  q = heads(q);
  k = heads(k);
  v = heads(v);
  q = rotate(t, c, q);
  k = rotate(t, c, k);
  aten::Sdpa options;
  options.backend = hf::sdpa_backend(c, false, s.head_dim, true);
  options.enable_gqa = k.size(1) != q.size(1);
  Tensor y = aten::scaled_dot_product_attention(t, q, k, v, Tensor(), options);
  y = aten::transpose(t, y, 1, 2);
  y = hf::merge_heads(t, y);
  y = any_linear(t, c, "proj", y);
  return t.leave(scope, y);
}

Tensor feed_forward(Tape& t, const Context& c, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter("mlp", in);
  Tensor hidden;
  if (c.shape().gated_mlp) {
    const Tensor gate = any_linear(t, c, "fc_1", in);
    const Tensor up = any_linear(t, c, "fc_2", in);
    hidden = aten::silu(t, gate);
    hidden = aten::mul(t, hidden, up);
  } else {
    hidden = any_linear(t, c, "fc", in);
    hidden = aten::gelu(t, hidden);
  }
  return t.leave(scope, any_linear(t, c, "proj", hidden));
}

// Block.forward
Tensor block(Tape& t, const Context& c, bool shared_norm) {
  Tensor x = t.input(c.hidden_shape());
  const auto scope = t.enter("", x);
  const Tensor n_1 = norm(t, c, "norm_1", x);
  const Tensor h = attention(t, c, n_1);
  if (c.shape().parallel_residual) {
    const Tensor n_2 = shared_norm ? n_1 : norm(t, c, "norm_2", x);
    Tensor sum = feed_forward(t, c, n_2);
    sum = aten::add(t, sum, h);
    return t.leave(scope, aten::add(t, sum, x));
  }
  x = aten::add(t, h, x);
  Tensor out = norm(t, c, "norm_2", x);
  out = feed_forward(t, c, out);
  return t.leave(scope, aten::add(t, out, x));
}

// torch.cat(loss_chunks).mean()
Tensor mean_of(Tape& t, const std::vector<Tensor>& losses) {
  std::vector<const Tensor*> inputs;
  for (const Tensor& loss : losses) inputs.push_back(&loss);
  Tensor mean = t.empty(Shape{}, DType::fp32);
  t.launch({.name = "mean", .kind = OpKind::reduction, .traffic = mean.bytes()});
  t.record({&mean}, inputs, [count = inputs.size()](Backward& b) {
    for (std::size_t i = 0; i < count; ++i) {
      if (b.needs(i)) b.give(i, b.tape.empty(Shape{}, DType::fp32));
    }
  });
  return mean;
}

Tensor rows_of(Tape& t, const Tensor& logits) {
  return aten::reshape(t, logits, Shape{logits.size(0) * logits.size(1), logits.size(2)});
}

// Logits without the last position.
Tensor shifted(Tape& t, const Tensor& logits) {
  return aten::slice(t, logits, 1, logits.size(1) - 1);
}

// finetune/lora.py: the head runs on 128 positions at a time, and so does the cross entropy. The
// loop's variable keeps the fp32 logits through backward.
Tensor chunked_loss(Tape& t, const Context& c, const Tensor& hidden) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(c.sequence / kHeadChunk), kHeadChunk);
  if (c.sequence % kHeadChunk != 0) sizes.push_back(c.sequence % kHeadChunk);
  std::vector<Tensor> logits;
  {
    const std::vector<Tensor> parts = aten::split(t, hidden, sizes, 1);
    for (const Tensor& part : parts) logits.push_back(any_linear(t, c, "lm_head", part));
  }
  for (Tensor& chunk : logits) {
    chunk = aten::to(t, chunk, DType::fp32);
    t.hold(chunk);
  }
  if (logits.back().size(1) > 1) logits.back() = shifted(t, logits.back());
  std::vector<Tensor> losses;
  for (const Tensor& chunk : logits) {
    const Tensor rows = rows_of(t, chunk);
    const Tensor log_probabilities = aten::log_softmax(t, rows);
    losses.push_back(aten::nll_loss(t, log_probabilities));
  }
  logits.clear();
  return mean_of(t, losses);
}

// finetune/full.py: chunked_cross_entropy(logits[..., :-1, :], targets, chunk_size=0)
Tensor whole_loss(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor logits = any_linear(t, c, "lm_head", hidden);
  logits = aten::to(t, logits, DType::fp32);
  t.hold(logits);
  Tensor kept = shifted(t, logits);
  kept = rows_of(t, kept);
  const Tensor log_probabilities = aten::log_softmax(t, kept);
  return aten::nll_loss(t, log_probabilities);
}

Tensor embedding(Tape& t, const Context& c) {
  const auto scope = t.enter("transformer.wte");
  Tensor out = aten::embedding(t, Shape{c.batch, c.sequence}, t.module_parameter("weight"));
  return t.leave(scope, out);
}

}  // namespace

void build(GraphAssembler& assembler, const Context& c) {
  const bool shared_norm = std::none_of(
      c.model.parameters.begin(), c.model.parameters.end(), [](const Parameter& parameter) {
        return parameter.name == "transformer.h.0.norm_2.weight";
      });
  // cos and sin of the longest sequence
  assembler.add_buffers(Elements::of(2 * c.sequence * c.shape().rotary_dim) * DType::fp32);
  assembler.add("GPT inputs", "", [&](Tape& t) { return embedding(t, c); });
  assembler.add_layers("Block", "transformer.h.", c.shape().layers, [&](Tape& t) {
    return block(t, c, shared_norm);
  });
  assembler.add("GPT head", "", [&](Tape& t) {
    Tensor hidden = t.input(c.hidden_shape());
    hidden = norm(t, c, "transformer.ln_f", hidden);
    t.forget_input();
    t.set_category(MemoryCategory::logits);
    return c.options.lora ? chunked_loss(t, c, hidden) : whole_loss(t, c, hidden);
  });
}

}  // namespace zeroplan::litgpt
