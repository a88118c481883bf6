// [B7] The loss of a trainer that distils: how far a student's distributions of the next token are
// from a teacher's.
#pragma once

#include "model/implementations/hf_common.hpp"

namespace zeroplan::hf {

// TRL's generalized Jensen-Shannon divergence of the logits (b, s, V), a scalar. The teacher's
// logits are no tensor of this graph: its pass stands before the loss (EventKind::passes_beside).
Tensor divergence_loss(Tape& t, const Context& c, const Tensor& logits);

}  // namespace zeroplan::hf
