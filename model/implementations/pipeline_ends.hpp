// The two ends of a pipeline stage that has a neighbour there: hidden states come from the stage
// before and their gradient goes back, hidden states go to the stage behind and their gradient
// comes.
//
// Source: deepspeed/runtime/pipe/engine.py PipelineEngine._exec_recv_activations,
// _exec_forward_pass, _exec_backward_pass, _exec_send_activations, _exec_send_grads,
// _exec_recv_grads. With tensor parallelism a rank sends its part, and the receiver gathers
// (runtime/utils.py PartitionedTensor).
#pragma once

#include <cstdint>

#include "model/graph/autograd.hpp"

namespace zeroplan {

struct TransferOptions {
  std::int64_t ranks = 1;  // of tensor parallelism, each of which moves a part; 1: all moves
};

// Hidden states of a micro-batch as the stage's first layer gets them.
Tensor receive_forward(Tape& t, const Shape& hidden, const TransferOptions& options);
// Takes the block's input, and stands for the loss in the backward pass.
Tensor send_forward(Tape& t, const Shape& hidden, const TransferOptions& options);

}  // namespace zeroplan
