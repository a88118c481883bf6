// Linear layers that DeepSpeed's AutoTP has cut: torch.matmul on the rank's part of the weight, an
// all-reduce behind those cut by their inputs, one of the gradient before those cut by their
// outputs. Both add up in place. Left out: tp_overlap_comm.
// Source: DeepSpeed module_inject/layers.py LinearAllreduce, LinearLayer, RowParallel,
// ColumnParallel, GatherFromTensorParallelRegion.
// Checked by tests/unit/model/implementations/graph_tensor_ranks_test.cpp.
#include <vector>

#include "model/implementations/hf_common.hpp"

namespace zeroplan::hf {

void reduce_among_ranks(Tape& t, Bytes bytes) {
  t.launch({.name = "all_reduce", .kind = OpKind::tensor_reduce, .traffic = bytes});
}

Tensor with_summed_gradient(Tape& t, const Tensor& x, Bytes bytes) {
  if (!t.trains({&x})) return x;
  Tensor out = x;
  t.record({&out}, {&x}, [bytes](Backward& b) {
    reduce_among_ranks(b.tape, bytes);
    b.give(0, b.gradient());
  });
  return out;
}

namespace {

// All ranks' parts stand one behind the other in a buffer, of which torch.cat makes the whole.
Tensor joined(Tape& t, const Tensor& part, std::int64_t ranks) {
  const Tensor own = aten::contiguous(t, part);
  const std::int64_t width = own.size(-1);
  Tensor out;
  {
    const Tensor all = t.empty(Shape{ranks * own.size(0), own.size(1), width}, own.dtype());
    t.launch({.name = "all_gather", .kind = OpKind::tensor_gather, .traffic = all.bytes()});
    out = t.empty(Shape{own.size(0), own.size(1), ranks * width}, own.dtype());
    t.launch({.name = "cat", .kind = OpKind::copy, .traffic = out.bytes() * 2});
  }
  if (t.trains({&own})) {
    t.record({&out}, {&own}, [shape = own.shape()](Backward& b) {
      Tensor gradient = b.tape.empty(shape, b.gradient().dtype());
      b.tape.launch({.name = "clone", .kind = OpKind::copy, .traffic = gradient.bytes() * 2});
      b.give(0, std::move(gradient));
    });
  }
  return out;
}

}  // namespace

Tensor cut_linear(
    Tape& t, const Context& c, TensorShard shard, std::string_view module, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  const Tensor weight = t.module_parameter("weight"), bias = t.module_parameter("bias");
  const bool by_rows = shard == TensorShard::rows;
  if (!by_rows) in = with_summed_gradient(t, in, in.bytes());
  Tensor out = aten::linear(t, in, weight, Tensor());
  if (by_rows) reduce_among_ranks(t, out.bytes());
  if (bias.defined()) out = aten::add(t, out, bias);
  if (shard == TensorShard::gathered_columns) out = joined(t, out, c.options.tensor_parallel);
  return t.leave(scope, out);
}

Tensor with_summed_norm_gradient(Tape& t, const Context& c, const Tensor& normed) {
  if (c.options.tensor_parallel <= 1) return normed;
  return with_summed_gradient(t, normed, Elements::of(normed.size(-1)) * t.dtype());
}

}  // namespace zeroplan::hf
