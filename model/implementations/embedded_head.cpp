// The end of the embedded runtime's models: the last norm, the logits and the mean of their cross
// entropy. Two ways:
//
// Whole: logits for all tokens; the backward pass puts their gradient in their place and makes
// those of the weight and of the hidden states from it.
//
// Fused (`fused_loss`): chunk by chunk of rows (loss_chunks.hpp), so that logits exist for one
// chunk. All three gradients are made in the forward pass, while the chunk's logits are there;
// backward would have to multiply by the weight once more to have them again: a third more work in
// the head. What that asks of an engine, and gets:
//  - the loss's own gradient (loss scale over accumulation steps) before the backward pass: it is
//    known when a micro-step begins, and cross_entropy_backward runs with it wherever it stands;
//  - ZeRO-3 fetches the head's weight once, for the forward pass: the backward pass does not enter
//    its module;
//  - the weight's gradient, finished early, is announced at the beginning of the backward pass,
//  where
//    the whole head announces it too: hooks, buckets and the order of reductions stay as they are.
//    Of a tied embedding that is the first part, which the embedding's backward pass adds to;
//  - chunks add to the weight's gradient in the model's dtype, as accumulation steps do: in 16 bits
//    a rounding for each chunk, of which there are few.
#include <algorithm>
#include <string>
#include <utility>

#include "model/implementations/embedded_layers.hpp"

namespace zeroplan::embedded {
namespace {

// The head's own weight, or the embedding's, whose gradient is complete only with the embedding's.
LinearWeights head_weights(BlockBuilder& b, const Head& head) {
  LinearWeights weights;
  weights.weight = b.parameter("weight");
  if (weights.weight.from == KernelOperand::From::none) {
    weights.weight = b.parameter_of_block(std::string(head.tied_embedding) + ".weight");
    b.tie(weights.weight, {.first = true, .last = false});
  }
  weights.bias = head.bias.empty() ? b.parameter("bias") : b.parameter_of_block(head.bias);
  return weights;
}

KernelCall cross_entropy(Kernel kernel,
                         const BlockBuilder& b,
                         std::vector<KernelOperand> operands) {
  KernelCall call;
  call.kernel = kernel;
  call.columns = b.shape().vocabulary;
  call.operands = std::move(operands);
  call.chunk.all = b.rows();
  return call;
}

HeadForward whole_forward(BlockBuilder& b, const Head& head, KernelOperand x) {
  HeadForward saved;
  saved.x = x;
  saved.logits = b.logits(b.rows() * b.shape().vocabulary);
  {
    const auto scope = b.module(head.module);
    linear_product(b, head_weights(b, head), {.y = saved.logits, .x = x});
  }
  const KernelOperand loss = b.loss();
  saved.lse = b.statistic(b.rows());
  b.run(cross_entropy(
      Kernel::cross_entropy_forward, b, {loss, saved.lse, saved.logits, BlockBuilder::labels()}));
  b.set_output(loss);
  return saved;
}

// `rows` rows of so many columns, from row `first` on.
KernelOperand rows_of(KernelOperand storage,
                      std::int64_t first,
                      std::int64_t rows,
                      std::int64_t columns) {
  storage.first = first * columns;
  storage.count = rows * columns;
  return storage;
}

HeadForward fused_forward(BlockBuilder& b, const Head& head, KernelOperand x) {
  const std::int64_t hidden = b.shape().hidden;
  const std::int64_t vocabulary = b.shape().vocabulary;
  const std::int64_t largest = b.loss_rows();
  const KernelOperand logits = b.logits(largest * vocabulary);
  const KernelOperand loss = b.loss();
  const KernelOperand lse = b.statistic(largest);
  HeadForward saved;
  saved.d_x = b.tensor(b.rows() * hidden);
  const auto scope = b.module(head.module);
  const LinearWeights weights = head_weights(b, head);
  for (std::int64_t first = 0; first < b.rows(); first += largest) {
    const std::int64_t rows = std::min(largest, b.rows() - first);
    const KernelOperand part = rows_of(logits, 0, rows, vocabulary);
    const KernelOperand sums = rows_of(lse, 0, rows, 1);
    const KernelOperand x_part = rows_of(x, first, rows, hidden);
    linear_product(b, weights, {.y = part, .x = x_part, .rows = rows});
    KernelCall call =
        cross_entropy(Kernel::cross_entropy_forward, b, {loss, sums, part, BlockBuilder::labels()});
    call.rows = rows;
    call.chunk.first = first;
    call.accumulate = first > 0;
    b.run(call);
    call.kernel = Kernel::cross_entropy_backward;
    call.operands = {part, part, sums, BlockBuilder::labels()};
    call.accumulate = false;
    b.run(call);
    linear_gradients(b,
                     weights,
                     {.d_y = part,
                      .x = x_part,
                      .d_x = rows_of(saved.d_x, first, rows, hidden),
                      .rows = rows,
                      .add_weights = first > 0});
  }
  b.set_output(loss);
  return saved;
}

}  // namespace

HeadForward head_forward(BlockBuilder& b, const Head& head, KernelOperand x) {
  return b.fused_loss() ? fused_forward(b, head, x) : whole_forward(b, head, x);
}

KernelOperand head_backward(BlockBuilder& b, const Head& head, const HeadForward& saved) {
  if (b.fused_loss()) return saved.d_x;
  b.run(cross_entropy(Kernel::cross_entropy_backward,
                      b,
                      {saved.logits, saved.logits, saved.lse, BlockBuilder::labels()}));
  const auto scope = b.module(head.module);
  return linear_gradients(b, head_weights(b, head), {.d_y = saved.logits, .x = saved.x});
}

Block head_block(BlockBuilder b, std::string_view last_norm, const Head& head) {
  const KernelOperand x = b.input(b.rows() * b.shape().hidden);
  const Norm last = norm(b, last_norm, x);
  const HeadForward forward = head_forward(b, head, last.y);
  b.begin_backward();
  const KernelOperand d_y = head_backward(b, head, forward);
  b.set_input_gradient(norm_backward(b, last_norm, last, d_y));
  return b.take();
}

}  // namespace zeroplan::embedded
