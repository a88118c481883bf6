#include "model/implementations/pipeline_ends.hpp"

#include <utility>

#include "model/graph/aten.hpp"

namespace zeroplan {
namespace {

Shape part_of(const Shape& whole, std::int64_t ranks) {
  return Shape{ceil_div(whole.numel().count(), ranks)};
}

void transfer(Tape& t, std::string_view name, Bytes bytes) {
  t.launch({.name = name, .kind = OpKind::stage_transfer, .traffic = bytes});
}

// Into the buffer that stays, and out of it.
Tensor received(Tape& t, const Shape& shape) {
  Tensor copy = t.empty(shape, t.dtype());
  transfer(t, "recv", copy.bytes());
  t.launch({.name = "clone", .kind = OpKind::copy, .traffic = copy.bytes() * 2});
  return copy;
}

// PartitionedTensor.full()
Tensor gathered(Tape& t, const Shape& whole) {
  Tensor full = t.empty(whole, t.dtype());
  t.launch({.name = "all_gather", .kind = OpKind::tensor_gather, .traffic = full.bytes()});
  return full;
}

}  // namespace

Tensor receive_forward(Tape& t, const Shape& hidden, const TransferOptions& options) {
  const bool parts = options.ranks > 1;
  Tensor buffered;  // pipe_buffers['inputs'], until the backward pass is done
  if (parts) {
    const Tensor part = received(t, part_of(hidden, options.ranks));
    buffered = gathered(t, hidden);
  } else {
    buffered = received(t, hidden);
  }
  Tensor leaf = parts ? buffered : aten::clone(t, buffered);
  t.require_grad(leaf);
  const Tensor saved = t.save(buffered);
  Tensor out = leaf;
  const Bytes sent = (part_of(hidden, options.ranks).numel()) * t.dtype();
  t.record({&out}, {&leaf}, [saved, sent](Backward& b) {
    transfer(b.tape, "send", sent);
    b.give(0, b.gradient());
  });
  return out;
}

Tensor send_forward(Tape& t, const Shape& hidden, const TransferOptions& options) {
  const Tensor x = t.input(hidden);
  const bool parts = options.ranks > 1;
  const Shape part_shape = part_of(hidden, options.ranks);
  Tensor kept;  // pipe_buffers['outputs']: the part, the tensor itself gives its memory back
  if (parts) {
    const Tensor part = t.empty(part_shape, t.dtype());
    t.launch({.name = "clone", .kind = OpKind::copy, .traffic = part.bytes() * 2});
    kept = t.save(part);
  } else {
    kept = t.save(x);
  }
  transfer(t, "send", kept.bytes());
  Tensor out = t.empty(Shape{}, DType::fp32);
  t.record({&out}, {&x}, [kept, hidden, part_shape, parts](Backward& b) {
    Tape& tape = b.tape;
    if (!parts) {
      b.give(0, received(tape, hidden));
      return;
    }
    const Tensor part = received(tape, part_shape);
    const Tensor output = gathered(tape, hidden);
    b.give(0, gathered(tape, hidden));
  });
  return out;
}

}  // namespace zeroplan
