// The head of a causal model: from the hidden states to the loss.
#include <algorithm>
#include <string>
#include <utility>

#include "base/diagnostic.hpp"
#include "model/implementations/hf_common.hpp"
#include "model/implementations/hf_distillation.hpp"
#include "model/implementations/hf_scores.hpp"
#include "model/implementations/loss_chunks.hpp"

namespace zeroplan::hf {

namespace {

// The head's own weight, or the embedding's, whose gradient is then complete only with it.
Tensor vocabulary_weight(Tape& t, const Context& c, const CausalHead& head) {
  Tensor weight = t.module_parameter("weight");
  if (!weight.defined()) weight = t.module_parameter("base_layer.weight");
  if (weight.defined()) return weight;
  std::string tied(head.embedding);
  weight = t.parameter(tied.append(".weight"));
  if (is_tied_here(c)) t.tie(weight, {.first = true, .last = false});
  return weight;
}

std::string own_weight(const CausalHead& head) { return std::string(head.module) + ".weight"; }

// Whether AutoTP has given the rank a part of the head's own weight.
bool is_cut(const Context& c, const Tensor& weight) {
  return weight.defined() && weight.size(0) < c.shape().vocabulary;
}

Tensor vocabulary_logits(Tape& t, const Context& c, const CausalHead& head, const Tensor& hidden) {
  if (t.has_parameter(head.module, "lora_A.default.weight")) {
    return linear(t, c, head.module, hidden);
  }
  if (c.options.tensor_parallel > 1 && is_cut(c, t.parameter(own_weight(head)))) {
    return cut_linear(t, c, TensorShard::gathered_columns, head.module, hidden);
  }
  Tensor in = hidden;
  const auto scope = t.enter(head.module, in);
  const Tensor weight = vocabulary_weight(t, c, head);
  const Tensor bias = t.module_parameter("bias");
  const Tensor out = c.options.zero3_linear ? aten::zero3_linear(t, in, weight, bias)
                                            : aten::linear(t, in, weight, bias);
  return t.leave(scope, out);
}

// liger_kernel/ops/fused_linear_cross_entropy.py: logits by chunks of rows, chosen so that a chunk
// takes about as much as the hidden states; both gradients are computed in forward and kept.
Tensor fused_linear_loss(Tape& t, const Context& c, const CausalHead& head, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter(head.module, in);
  const Tensor weight = vocabulary_weight(t, c, head);
  const std::int64_t tokens = in.numel().count() / in.size(-1), h = in.size(-1), v = weight.size(0);
  const std::int64_t chunk = liger_loss_rows({.tokens = tokens, .hidden = h, .vocabulary = v});
  const bool trains = t.trains({&in, &weight});
  const auto zeros = [&](const Shape& shape, DType dtype, MemoryCategory category) {
    Tensor out = t.empty(shape, dtype, category);
    t.launch({.name = "zeros", .kind = OpKind::fill, .traffic = out.bytes()});
    return out;
  };
  // Under autocast the kernel's products are of lower precision, too.
  const DType dtype = t.autocast().value_or(t.dtype());
  const Tensor dx = zeros(in.shape(), t.dtype(), MemoryCategory::activations);
  const Tensor dw = weight.requires_grad()
                        ? zeros(weight.shape(), t.dtype(), MemoryCategory::gradients)
                        : Tensor();
  const Tensor losses = zeros(Shape{tokens}, DType::fp32, MemoryCategory::logits);
  for (std::int64_t row = 0; row < tokens; row += chunk) {
    const std::int64_t rows = std::min(chunk, tokens - row);
    const Tensor logits = t.empty(Shape{rows, v}, dtype);
    const Bytes operands = Bytes::of((rows * h + v * h) * width(dtype));
    const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
      t.launch({.name = "mm", .kind = OpKind::matmul, .traffic = operands + logits.bytes()},
               MatrixProduct{1, m, n, k, dtype});
    };
    product(rows, v, h);
    t.launch(
        {.name = "liger_cross_entropy", .kind = OpKind::softmax, .traffic = logits.bytes() * 3});
    {
      const Tensor part = t.empty(Shape{rows, h}, dtype);  // copied into its rows of dx
      product(rows, h, v);
      t.launch({.name = "copy_", .kind = OpKind::copy, .traffic = part.bytes() * 2});
    }
    if (dw.defined()) product(v, h, rows);
  }
  Tensor loss = t.empty(Shape{}, DType::fp32);
  t.launch({.name = "sum", .kind = OpKind::reduction, .traffic = losses.bytes()});
  if (trains) {
    const Tensor saved_dx = t.save(dx);
    const Tensor saved_dw = dw.defined() ? t.save(dw) : Tensor();
    t.record({&loss}, {&in, &weight}, [saved_dx, saved_dw](Backward& b) {
      if (b.needs(0)) b.give(0, saved_dx);
      if (b.needs(1)) b.give(1, saved_dw);
    });
  }
  return t.leave(scope, loss);
}

Tensor flatten(Tape& t, const Tensor& logits) {
  return aten::view(t, logits, Shape{logits.numel().count() / logits.size(-1), logits.size(-1)});
}

// F.pad(labels, (0, 1))[..., 1:].contiguous(): of one row that is a view of the padded labels.
struct Labels {
  Tensor padded, shifted;
};
Labels padded_labels(Tape& t, const Context& c) {
  const auto copy = [&](std::int64_t positions, std::string_view name) {
    Tensor out = t.empty(Shape{c.batch, positions}, DType::int64);
    t.launch({.name = name, .kind = OpKind::copy, .traffic = out.bytes() * 2});
    return out;
  };
  Labels labels;
  labels.padded = copy(c.sequence + 1, "constant_pad_nd");
  labels.shifted = c.batch > 1 ? copy(c.sequence, "clone") : labels.padded;
  return labels;
}

// labels[..., 1:].contiguous(): of one row that is a view of the batch.
Tensor shifted_labels(Tape& t, const Context& c) {
  if (c.batch == 1) return {};
  Tensor out = t.empty(Shape{c.batch, c.sequence - 1}, DType::int64);
  t.launch({.name = "clone", .kind = OpKind::copy, .traffic = out.bytes() * 2});
  return out;
}

// logits[..., :-1, :].contiguous(): of one row that is a view. The last colon is a slice, too, with
// a gradient of its own (python_variable_indexing.cpp applySlicing).
Tensor shifted(Tape& t, const Tensor& logits) {
  Tensor kept = aten::slice(t, logits, 1, logits.size(1) - 1);
  kept = aten::slice(t, kept, 2, kept.size(2));
  return aten::contiguous(t, kept);
}

// flash_attn/losses/cross_entropy.py SoftmaxCrossEntropyLossFn (apex's xentropy): forward passes
// twice over the 16-bit logits and keeps a number a row, backward writes their gradient from them.
Tensor fused_cross_entropy(Tape& t, const Tensor& rows) {
  const bool trains = t.trains({&rows});
  Tensor saved;
  if (trains) saved = t.save(rows);
  Tensor losses = t.empty(Shape{rows.size(0)}, DType::fp32);
  const Tensor sums = t.empty(Shape{rows.size(0)}, DType::fp32);
  t.launch({.name = "xentropy", .kind = OpKind::softmax, .traffic = rows.bytes() * 2});
  if (trains) {
    const Tensor saved_sums = t.save(sums);
    t.record({&losses}, {&rows}, [saved, saved_sums](Backward& b) {
      Tensor gradient = b.tape.empty(saved.shape(), saved.dtype());
      b.tape.launch(
          {.name = "xentropy_backward", .kind = OpKind::softmax, .traffic = saved.bytes() * 2});
      b.give(0, std::move(gradient));
    });
  }
  return aten::mean_last(t, losses);
}

// A metric's cross entropy: cast to fp32, log-softmax, one number a row. It runs when the
// activations are gone, so that its memory decides nothing; its time is counted here.
void metric(Tape& t, const Tensor& rows) {
  const Bytes wide = rows.numel() * DType::fp32;
  t.launch({.name = "_to_copy", .kind = OpKind::copy, .traffic = rows.bytes() + wide});
  t.launch({.name = "_log_softmax", .kind = OpKind::softmax, .traffic = wide * 2});
  t.launch({.name = "nll_loss", .kind = OpKind::reduction, .traffic = Bytes::of(4 * rows.size(0))});
}

}  // namespace

Tensor causal_loss(Tape& t, const Context& c, const CausalHead& head, const Tensor& hidden) {
  if (c.options.scores.holds_hidden) t.hold(hidden);
  if (c.options.scores.code == TokenScores::values) return score_tokens(t, c, hidden);
  t.set_category(MemoryCategory::logits);
  if (c.options.scores.code == TokenScores::chunks) {
    Tensor in = hidden;
    const auto scope = t.enter(head.module, in);
    return t.leave(scope, scored_tiles_loss(t, c, in, vocabulary_weight(t, c, head)));
  }
  // LLaMA-Factory asks Liger to leave logits to these trainers (require_logits).
  const TokenScores code = c.options.scores.code;
  const bool distils = code == TokenScores::logits || code == TokenScores::divergence;
  const bool all = code == TokenScores::wide || code == TokenScores::wide_kernel ||
                   code == TokenScores::kernel_in_place;
  const bool fused = c.options.fused_loss && !all && !distils;
  if (fused) return fused_linear_loss(t, c, head, hidden);
  Tensor kept_hidden = hidden;
  const ScoreOptions& scores = c.options.scores;
  if (code != TokenScores::none && !distils && !all && !scores.holds_outputs && scores.tokens > 0) {
    // logits_to_keep of GRPO: the scored tokens and the one before them
    const std::int64_t positions = std::min(c.sequence, scores.tokens + 1);
    kept_hidden = aten::slice(t, hidden, 1, positions);
  }
  Tensor logits = vocabulary_logits(t, c, head, kept_hidden);
  kept_hidden = Tensor();
  if (c.shape().logits_scaled) logits = aten::scale(t, logits);
  if (c.shape().logits_softcap) {
    logits = aten::scale(t, logits, "div");
    logits = aten::tanh(t, logits);
    logits = aten::scale(t, logits);
  }
  const bool upcast_in_model = head.code == LossCode::float_in_model || head.fp32_logits;
  if (upcast_in_model) logits = aten::to(t, logits, DType::fp32);
  if (scores.code != TokenScores::none) {
    // accelerate's convert_outputs_to_fp32 around the forward of a model under autocast
    if (t.autocast()) logits = aten::to(t, logits, DType::fp32);
    if (code == TokenScores::logits) return logits;
    if (code == TokenScores::divergence) {
      t.forget(hidden);  // the model's forward() has returned
      return divergence_loss(t, c, logits);
    }
    return scored_logits_loss(t, c, std::move(logits));
  }
  t.hold(logits);
  if (head.code == LossCode::fused_outside) {
    const Tensor rows = flatten(t, logits);
    const Tensor loss = fused_cross_entropy(t, rows);
    for (int i = 0; i < head.training_metrics; ++i) metric(t, rows);
    return loss;
  }
  if (head.code != LossCode::loss_function) {
    const bool shifts = head.code != LossCode::unshifted_in_model;
    Tensor kept = shifts ? shifted(t, logits) : logits;
    const Tensor labels = shifts ? shifted_labels(t, c) : Tensor();
    kept = flatten(t, kept);
    const Tensor log_probabilities = aten::log_softmax(t, kept);
    return aten::nll_loss(t, log_probabilities, labels);
  }
  // loss_utils.ForCausalLMLoss rebinds its argument; the model's frame keeps the logits
  const Tensor upcast = aten::to(t, logits, DType::fp32);
  const bool pads = c.acts(ReleaseRule::loss_pads_labels);
  Tensor kept = pads ? upcast : shifted(t, upcast);
  Labels labels;
  if (pads) {
    labels = padded_labels(t, c);
  } else {
    labels.shifted = shifted_labels(t, c);
  }
  kept = flatten(t, kept);
  const Tensor log_probabilities = aten::log_softmax(t, kept);
  return aten::nll_loss(t, log_probabilities, labels.shifted);
}

}  // namespace zeroplan::hf
