// Parts of a problem that are computed one after the other: batches and groups of heads that share
// keys know nothing of each other.
#pragma once

#include <vector>

#include "runtime/cuda/kernels/library_attention.hpp"

namespace zeroplan::runtime::cuda {

// Problems that `problem` is a number of, the largest first: itself, one batch of it, and one with
// every number of its key heads that divides them and leaves the statistics of every slice at 16
// bytes.
std::vector<AttentionProblem> slices(const AttentionProblem& problem);

// Bytes that cuDNN 9 takes for a plan of this problem at least. Forward none. Backward, whose sums
// have one order: all dS in the format of the operands, 2 B H S^2. Asked of cuDNN 9.19 without a
// device (tests/cudnn): 32 MiB and 128 bytes for 16 heads of 1,024 queries on an A100, 256 bytes on
// an H100, so that 32 MiB are too small by that; 1,088 MiB for 32 heads of 4,096 that share 8.
std::int64_t least_workspace(const AttentionProblem& problem);

// Where each slice's operands are.
std::vector<AttentionMemory> slices_of(const AttentionProblem& problem,
                                       const AttentionProblem& slice,
                                       const AttentionMemory& memory);

}  // namespace zeroplan::runtime::cuda
