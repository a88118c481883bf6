// The head of a causal model under trainers that score tokens (TRL's, LLaMA-Factory's,
// OpenRLHF's and verl's): from the hidden states to log-probabilities of
// tokens, and from them to a loss. N tokens are scored, of T; h hidden, V vocabulary.
//
// Sources: TRL's trainer/utils.py (selective_log_softmax, entropy_from_logits, add_fused_lm_head),
// kernels/chunked_logprob.py, trainer/dpo_trainer.py, of the releases of
// configs/release_rules.json.
#include "model/implementations/hf_scores.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "model/implementations/hf_common.hpp"

namespace zeroplan::hf {
namespace {

constexpr std::int64_t kTileTokens = 4096;  // chunked_logprob.py TOKEN_CHUNK_SIZE
constexpr std::int64_t kTileWords = 32768;  // utils.py _CHUNKED_LOGPROB_CHUNK_SIZE
constexpr std::int64_t kEntropyRows = 128;  // utils.py entropy_from_logits chunk_size

std::int64_t scored_of_each_row(const Context& c) {
  const std::int64_t all = c.sequence - 1;
  const std::int64_t said = c.options.scores.tokens;
  return said > 0 ? std::min(said, all) : all;
}

// A sum of numbers for each token, and what the loss makes of it: two numbers a row.
Tensor loss_of(Tape& t, const Tensor& scores) {
  Tensor loss = t.empty(Shape{}, DType::fp32);
  t.launch({.name = "sum", .kind = OpKind::reduction, .traffic = scores.bytes(), .kernels = 8});
  if (t.trains({&scores})) {
    t.record({&loss}, {&scores}, [shape = scores.shape(), dtype = scores.dtype()](Backward& b) {
      Tensor gradient = b.tape.empty(shape.as_contiguous(), dtype);
      b.tape.launch(
          {.name = "expand", .kind = OpKind::fill, .traffic = gradient.bytes(), .kernels = 8});
      b.give(0, std::move(gradient));
    });
  }
  return loss;
}

// --- from all logits

// x.gather(-1, index): backward is zeros and a scatter (scatter_add of gather_backward).
Tensor gather_one(Tape& t, const Tensor& x) {
  const Shape shape = x.shape().without(-1).as_contiguous();
  Tensor out = t.empty(shape, x.dtype());
  t.launch({.name = "gather", .kind = OpKind::gather, .traffic = out.bytes() * 6});
  if (t.trains({&x})) {
    t.record({&out}, {&x}, [whole = x.shape().as_contiguous(), dtype = x.dtype()](Backward& b) {
      Tensor gradient = b.tape.empty(whole, dtype);
      b.tape.launch({.name = "scatter_add_",
                     .kind = OpKind::scatter,
                     .traffic = gradient.bytes() + b.gradient().bytes() * 6,
                     .kernels = 2});
      b.give(0, std::move(gradient));
    });
  }
  return out;
}

// torch.logsumexp(x, -1): exp(x - max) and its sum; it saves x and the result, and backward is
// grad * (x - result).exp() (FunctionsManual.cpp logsumexp_backward).
Tensor log_sum_exp(Tape& t, const Tensor& x) {
  const Shape shape = x.shape().without(-1).as_contiguous();
  const bool trains = t.trains({&x});
  Tensor saved;
  if (trains) saved = t.save(x);
  Tensor out;
  {
    const Tensor shifted = t.empty(x.shape().as_contiguous(), x.dtype());
    t.launch(
        {.name = "logsumexp", .kind = OpKind::softmax, .traffic = x.bytes() * 4, .kernels = 5});
    out = t.empty(shape, x.dtype());
  }
  if (!trains) return out;
  t.record({&out}, {&x}, [saved](Backward& b) {
    // One expression: C++ keeps its temporaries until its end, and drops the later first.
    const Tensor powers = b.tape.empty(saved.shape().as_contiguous(), saved.dtype());
    b.tape.launch({.name = "sub", .traffic = saved.bytes() * 2});
    const Tensor exponentials = b.tape.empty(saved.shape().as_contiguous(), saved.dtype());
    b.tape.launch({.name = "exp", .traffic = saved.bytes() * 2});
    Tensor gradient = b.tape.empty(saved.shape().as_contiguous(), saved.dtype());
    b.tape.launch({.name = "mul", .traffic = saved.bytes() * 2});
    b.give(0, std::move(gradient));
  });
  return out;
}

// Row by row of the batch. 16-bit logits: log_softmax of a row, whose result is saved. fp32: the
// token's logit less the row's logsumexp.
Tensor scores_by_rows(Tape& t, const Tensor& logits) {
  const auto rows = static_cast<std::size_t>(logits.size(0));
  const bool wide = logits.dtype() == DType::fp32;
  Tensor selected;
  if (wide) selected = gather_one(t, logits);
  std::vector<Tensor> sums;
  for (const Tensor& row : aten::split(t, logits, std::vector<std::int64_t>(rows, 1), 0)) {
    if (wide) {
      sums.push_back(log_sum_exp(t, row));
      continue;
    }
    const Tensor log_probabilities = aten::log_softmax(t, row);
    sums.push_back(gather_one(t, log_probabilities));
  }
  std::vector<const Tensor*> parts;
  parts.reserve(sums.size());
  for (const Tensor& sum : sums) parts.push_back(&sum);
  const Tensor joined = aten::cat(t, parts, 0);
  return wide ? aten::sub(t, selected, joined) : joined;
}

// kernels/logprob_entropy.py: reads the logits once, leaves numbers in fp32, saves the logits;
// backward writes their gradient, `over` them or in a tensor of its own.
Tensor scores_by_kernel(Tape& t, const Tensor& logits, bool over = false) {
  const Shape shape = logits.shape().without(-1).as_contiguous();
  const bool trains = t.trains({&logits});
  Tensor saved;
  if (trains) saved = t.save(logits);
  Tensor out = t.empty(shape, DType::fp32);
  const Tensor sums = t.empty(shape, DType::fp32);
  const Tensor entropy = t.empty(shape, DType::fp32);
  t.launch({.name = "logprob_entropy", .kind = OpKind::softmax, .traffic = logits.bytes()});
  if (!trains) return out;
  const Tensor saved_sums = t.save(sums);
  const Tensor saved_entropy = t.save(entropy);
  t.record({&out}, {&logits}, [saved, saved_sums, saved_entropy, over](Backward& b) {
    Tensor gradient = over ? saved : b.tape.empty(saved.shape().as_contiguous(), saved.dtype());
    b.tape.launch({.name = "logprob_entropy_backward",
                   .kind = OpKind::softmax,
                   .traffic = saved.bytes() * 2});
    b.give(0, std::move(gradient));
  });
  return out;
}

// entropy_from_logits(logits.detach()): a slice of the logits is copied to be flat; then 128 tokens
// at a time.
void measure_entropy(Tape& t, const Tensor& logits) {
  const Tensor flat =
      logits.shape().contiguous() ? logits.detached() : aten::contiguous(t, logits.detached());
  const std::int64_t tokens = logits.size(0) * logits.size(1);
  const std::int64_t rows = std::min(kEntropyRows, tokens);
  const Shape chunk{rows, logits.size(2)};
  const Tensor log_probabilities = t.empty(chunk, logits.dtype());
  const Tensor exponentials = t.empty(chunk, logits.dtype());
  const Tensor products = t.empty(chunk, logits.dtype());
  const auto launches = static_cast<std::int32_t>((tokens + rows - 1) / rows);
  t.launch({.name = "entropy",
            .kind = OpKind::softmax,
            .traffic = logits.bytes() * 7,
            .kernels = 5 * launches});
}

// chosen_logits[chosen_mask.bool()], for the log: a copy of the completions of half the rows.
void measure_means(Tape& t, const Context& c, const Tensor& logits) {
  const std::int64_t rows = std::max<std::int64_t>(1, logits.size(0) / 2);
  const Tensor chosen =
      t.empty(Shape{rows * scored_of_each_row(c), logits.size(2)}, logits.dtype());
  t.launch({.name = "index", .kind = OpKind::gather, .traffic = chosen.bytes() * 3, .kernels = 4});
}

Tensor scores_of_logits(Tape& t, const Context& c, const Tensor& logits) {
  const ScoreOptions& scores = c.options.scores;
  Tensor shifted = aten::slice(t, logits, 1, logits.size(1) - 1);
  if (scores.copies_shifted) {
    shifted = aten::contiguous(t, shifted);
    t.hold(shifted);
  }
  Tensor out;
  switch (scores.code) {
    case TokenScores::rows:
      out = scores_by_rows(t, shifted);
      break;
    case TokenScores::kernel:
      out = scores_by_kernel(t, shifted);
      break;
    default: {
      const Tensor log_probabilities = aten::log_softmax(t, aten::contiguous(t, shifted));
      out = gather_one(t, log_probabilities);
      break;
    }
  }
  if (scores.measures_entropy) {
    if (scores.code == TokenScores::rows) measure_entropy(t, shifted);
    measure_means(t, c, shifted);
  }
  return out;
}

// LLaMA-Factory: logits.to(float32), whose 16-bit original goes at once; log_softmax of all but the
// last position, which copies them to be dense while it runs; one number a token. The fp32 logits
// are kept for the log until the trainer's function returns, under KTO as copies of chosen and of
// rejected rows. Source: llamafactory/train/dpo/trainer.py concatenated_forward,
// kto/trainer.py forward, train/trainer_utils.py get_batch_logps of 0.9.1 to 0.9.5.
Tensor wide_loss(Tape& t, const Context& c, Tensor logits) {
  const ScoreOptions& scores = c.options.scores;
  Tensor others;
  if (scores.beside_others) others = t.empty(logits.shape().as_contiguous(), DType::fp32);
  const Tensor wide = aten::to(t, logits, DType::fp32);
  logits = Tensor();
  if (!scores.copies_rows) t.hold(wide);
  const Tensor kept = aten::slice(t, wide, 1, wide.size(1) - 1);
  const Tensor log_probabilities = aten::log_softmax(t, aten::contiguous(t, kept));
  const Tensor loss = loss_of(t, gather_one(t, log_probabilities));
  if (scores.copies_rows) {
    const Tensor copies = t.empty(wide.shape().as_contiguous(), DType::fp32);
    t.launch(
        {.name = "index", .kind = OpKind::gather, .traffic = copies.bytes() * 2, .kernels = 8});
    t.hold(copies);
  }
  return loss;
}

// OpenRLHF: logits.to(float32) takes the place of the output's 16-bit ones, then FlashAttention's
// cross entropy of every position, which saves them and the sums, and whose backward writes a
// gradient of its own. Source: openrlhf/models/actor.py forward, models/utils.py
// log_probs_from_logits of 0.7 to 0.11; flash_attn/ops/triton/cross_entropy.py.
Tensor wide_kernel_loss(Tape& t, const Context& c, Tensor logits) {
  const Tensor wide = aten::to(t, logits, DType::fp32);
  logits = Tensor();
  if (c.options.scores.holds_outputs) t.hold(wide);
  return loss_of(t, scores_by_kernel(t, wide));
}

// --- from tiles of logits

// hidden[mask] of (b, s - 1, h): row numbers, then a copy of the N rows. Backward: zeros and a
// sorted index_put.
Tensor scored_rows(Tape& t, const Tensor& hidden, std::int64_t scored) {
  Tensor out = t.empty(Shape{scored, hidden.size(-1)}, hidden.dtype());
  const Tensor places = t.empty(Shape{2, scored}, DType::int64);
  t.launch({.name = "index", .kind = OpKind::gather, .traffic = out.bytes() * 2, .kernels = 4});
  if (!t.trains({&hidden})) return out;
  const Tensor saved = t.save(places);
  t.record({&out}, {&hidden}, [whole = hidden.shape().as_contiguous(), saved](Backward& b) {
    Tensor gradient = b.tape.empty(whole, b.gradient().dtype());
    const Tensor order = b.tape.empty(saved.shape(), DType::int64);
    const Tensor sorted = b.tape.empty(saved.shape(), DType::int64);
    b.tape.launch({.name = "index_put_",
                   .kind = OpKind::scatter,
                   .traffic = gradient.bytes() + b.gradient().bytes() * 2,
                   .kernels = 8});
    b.give(0, std::move(gradient));
  });
  return out;
}

// Products of one tile of N x V: forward one; backward the tile again and two for its gradients,
// which are added up in fp32.
void launch_tiles(Tape& t,
                  std::int64_t tokens,
                  std::int64_t hidden,
                  std::int64_t vocabulary,
                  bool backward,
                  DType dtype) {
  for (std::int64_t row = 0; row < tokens; row += kTileTokens) {
    const std::int64_t m = std::min(kTileTokens, tokens - row);
    for (std::int64_t word = 0; word < vocabulary; word += kTileWords) {
      const std::int64_t n = std::min(kTileWords, vocabulary - word);
      const Bytes operands = Bytes::of((m * hidden + n * hidden) * width(dtype));
      const auto product = [&](std::int64_t a, std::int64_t b, std::int64_t k) {
        const Bytes logits = Bytes::of(m * n * width(dtype));
        t.launch({.name = "mm", .kind = OpKind::matmul, .traffic = operands + logits},
                 MatrixProduct{1, a, b, k, dtype});
      };
      product(m, n, hidden);
      t.launch({.name = "fold_logits",
                .kind = OpKind::softmax,
                .traffic = Bytes::of(m * n * width(dtype) * (backward ? 2 : 1))});
      if (!backward) continue;
      product(m, hidden, n);
      product(n, hidden, m);
    }
  }
}

// hidden and weight in the products' format, a tile at a time: nothing where they have it.
struct TileCasts {
  Tensor hidden, weight;
};
TileCasts cast_tiles(Tape& t,
                     const Shape& tile,
                     std::int64_t h,
                     std::int64_t vocabulary,
                     DType stored,
                     DType dtype) {
  TileCasts casts;
  if (stored == dtype) return casts;
  casts.hidden = t.empty(Shape{tile.size(0), h}, dtype);
  casts.weight = t.empty(Shape{std::min(vocabulary, tile.size(1)), h}, dtype);
  t.launch({.name = "_to_copy", .kind = OpKind::copy, .traffic = casts.weight.bytes() * 3});
  return casts;
}

// ChunkedLogProbFunction. Its tile has all columns, however small the vocabulary is (mm_buf).
Tensor scores_of_tiles(Tape& t, const Context& c, const Tensor& hidden, const Tensor& weight) {
  const std::int64_t n = hidden.size(0), h = hidden.size(1), v = weight.size(0);
  const DType dtype = c.compute_dtype();
  const Shape tile_shape{std::min(n, kTileTokens), kTileWords};
  const bool trains = t.trains({&hidden, &weight});
  std::vector<Tensor> sums;
  for (int i = 0; i < 7; ++i) sums.push_back(t.empty(Shape{n}, DType::fp32));
  t.launch({.name = "zeros", .kind = OpKind::fill, .traffic = sums[0].bytes() * 7, .kernels = 7});
  {
    const Tensor tile = t.empty(tile_shape, dtype);
    const TileCasts casts = cast_tiles(t, tile_shape, h, v, weight.dtype(), dtype);
    launch_tiles(t, n, h, v, false, dtype);
  }
  Tensor out = t.empty(Shape{n}, DType::fp32);
  const Tensor log_sums = t.empty(Shape{n}, DType::fp32);
  const Tensor entropy = t.empty(Shape{n}, DType::fp32);
  t.launch({.name = "log", .traffic = out.bytes() * 6, .kernels = 6});
  sums.clear();
  if (!trains) return out;
  const Tensor saved = t.save(hidden);
  const Tensor saved_sums = t.save(log_sums);
  const Tensor saved_entropy = t.save(entropy);
  t.record(
      {&out},
      {&hidden, &weight},
      [saved, saved_sums, saved_entropy, tile_shape, n, h, v, dtype, weight_dtype = weight.dtype()](
          Backward& b) {
        Tensor hidden_sum, weight_sum;
        if (b.needs(0)) hidden_sum = b.tape.empty(Shape{n, h}, DType::fp32);
        if (b.needs(1)) {
          weight_sum = b.tape.empty(Shape{v, h}, DType::fp32, MemoryCategory::gradients);
        }
        const Tensor tile = b.tape.empty(tile_shape, dtype);
        const TileCasts casts = cast_tiles(b.tape, tile_shape, h, v, weight_dtype, dtype);
        launch_tiles(b.tape, n, h, v, true, dtype);
        if (b.needs(0)) b.give(0, aten::to(b.tape, hidden_sum, saved.dtype()));
        if (b.needs(1)) b.give(1, aten::to(b.tape, weight_sum, weight_dtype));
      });
  return out;
}

constexpr auto kValues = static_cast<std::int32_t>(Slot::values);

// logits[:, first:-1] /= temperature: a view of the scored positions is divided in place. Backward
// (autograd's CopySlices, torch/csrc/autograd/functions/tensor.cpp): a gradient of the view is
// written into zeros of the whole, which are copied, as is the view's part, for the division.
Tensor scaled_in_place(Tape& t, const Tensor& logits, std::int64_t scored) {
  Tensor changed = t.alias(logits, logits.shape(), "");
  const Shape part = logits.shape().with_size(1, scored).as_contiguous();
  t.launch(
      {.name = "div_", .traffic = Bytes::of(part.numel().count() * width(logits.dtype()) * 2)});
  if (!t.trains({&logits})) return changed;
  t.record({&changed}, {&logits}, [part](Backward& b) {
    const Tensor& gradient = b.gradient();
    Tensor whole = b.tape.empty(gradient.shape().as_contiguous(), gradient.dtype());
    b.tape.launch({.name = "copy_", .kind = OpKind::copy, .traffic = whole.bytes() * 2});
    const Tensor copied = b.tape.empty(part, gradient.dtype());
    b.tape.launch({.name = "clone", .kind = OpKind::copy, .traffic = copied.bytes() * 2});
    const Tensor divided = b.tape.empty(part, gradient.dtype());
    b.tape.launch({.name = "div", .traffic = copied.bytes() * 2});
    b.tape.launch({.name = "copy_", .kind = OpKind::copy, .traffic = copied.bytes() * 2});
    b.give(0, std::move(whole));
  });
  return changed;
}

// PPOTrainer's loss of the policy and of the values: clipped ratios of log-probabilities and
// clipped differences of values, which are numbers a token.
Tensor loss_with_values(Tape& t, const Context& c, const Tensor& scores) {
  if (!t.grad_enabled()) return loss_of(t, scores);
  const Tensor values = t.shared_with_gradient(
      t.slot_of_all(kValues), Shape{c.batch, c.sequence, 1}, t.dtype(), true);
  Tensor loss = t.empty(Shape{}, DType::fp32);
  t.launch({.name = "sum", .kind = OpKind::reduction, .traffic = scores.bytes(), .kernels = 30});
  t.record(
      {&loss},
      {&scores, &values},
      [s = scores.shape(), v = values.shape(), d = scores.dtype(), e = values.dtype()](
          Backward& b) {
        Tensor of_scores = b.tape.empty(s.as_contiguous(), d);
        Tensor of_values = b.tape.empty(v, e);
        b.tape.launch(
            {.name = "mul", .kind = OpKind::fill, .traffic = of_scores.bytes(), .kernels = 40});
        b.give(0, std::move(of_scores));
        b.give(1, std::move(of_values));
      });
  return loss;
}

// ppo_trainer.py of 0.12 to 1.12: log-probabilities of the response's tokens from all logits, which
// are divided by the temperature before.
Tensor ppo_loss(Tape& t, const Context& c, const Tensor& logits) {
  const ScoreOptions& scores = c.options.scores;
  t.hold(logits);
  const std::int64_t scored = scored_of_each_row(c);
  const Tensor scaled = scaled_in_place(t, logits, scored);
  const Tensor kept = aten::slice(t, scaled, 1, scored);
  Tensor numbers;
  if (scores.code == TokenScores::rows) {
    numbers = scores_by_rows(t, kept);
  } else {
    const Tensor log_probabilities = aten::log_softmax(t, kept);
    numbers = gather_one(t, log_probabilities);
  }
  return scores.reads_values ? loss_with_values(t, c, numbers) : loss_of(t, numbers);
}

// verl: the logits of all tokens, in a view that is divided in place by the temperature, and
// FlashAttention's cross entropy with inplace_backward. Source: workers/actor/dp_actor.py
// _forward_micro_batch with use_remove_padding, utils/torch_functional.py logprobs_from_logits.
Tensor scaled_kernel_loss(Tape& t, const Context& c, Tensor logits) {
  const Tensor scaled = scaled_in_place(t, logits, c.sequence);
  logits = Tensor();
  return loss_of(t, scores_by_kernel(t, scaled, true));
}

}  // namespace

Tensor score_tokens(Tape& t, const Context& c, const Tensor& hidden) {
  t.set_category(MemoryCategory::logits);
  Tensor values = linear(t, c, "score", hidden);
  if (c.options.scores.reads_values && t.grad_enabled()) {
    t.share_with_gradient(t.slot_of_all(kValues), values);
  }
  return values;
}

Tensor scored_tiles_loss(Tape& t, const Context& c, const Tensor& hidden, const Tensor& weight) {
  const std::int64_t scored = c.batch * scored_of_each_row(c);
  // Labels of the whole batch, and which of them count.
  const Tensor labels = t.empty(Shape{c.batch, c.sequence}, DType::int64);
  const Tensor counts = t.empty(Shape{c.batch, c.sequence - 1}, DType::boolean);
  t.launch({.name = "masked_fill", .traffic = labels.bytes() * 3, .kernels = 3});
  t.hold(labels);
  const Tensor kept = aten::slice(t, hidden, 1, c.sequence - 1);
  const Tensor rows = scored_rows(t, kept, scored);
  const Tensor scores = scores_of_tiles(t, c, rows, weight);
  return loss_of(t, scores);
}

Tensor scored_logits_loss(Tape& t, const Context& c, Tensor logits) {
  if (c.options.scores.code == TokenScores::wide) return wide_loss(t, c, std::move(logits));
  if (c.options.scores.code == TokenScores::wide_kernel) {
    return wide_kernel_loss(t, c, std::move(logits));
  }
  if (c.options.scores.code == TokenScores::kernel_in_place) {
    return scaled_kernel_loss(t, c, std::move(logits));
  }
  if (c.options.scores.scales_logits) return ppo_loss(t, c, logits);
  if (c.options.scores.holds_outputs) t.hold(logits);
  return loss_of(t, scores_of_logits(t, c, logits));
}

}  // namespace zeroplan::hf
