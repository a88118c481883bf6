// Parts of a problem that are computed one after the other: batches and groups of heads that share
// keys know nothing of each other.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/cuda/kernels/library_attention.hpp"

namespace zeroplan::runtime::cuda {

// Problems that `problem` is a number of, the largest first: itself, as many of its sequences as
// divide them, and of one sequence as many key heads as divide them. The statistics of every slice
// begin at 16 bytes.
std::vector<AttentionProblem> slices(const AttentionProblem& problem);

// Bytes of fp32 sums of queries' gradients, which a problem without an order of sums has in memory.
std::int64_t bytes_of_sums(const AttentionProblem& problem);

// Bytes that cuDNN 9 takes for a plan of this problem at least. Forward none. Backward, whose sums
// have one order: all dS in the format of the operands, 2 B H S^2. Asked of cuDNN 9.19 without a
// device (tests/cudnn): 32 MiB and 128 bytes for 16 heads of 1,024 queries on an A100, 256 bytes on
// an H100; 1,088 MiB for 32 heads of 4,096 that share 8. Backward without an order: the sums above;
// in all 16 MiB of sums, 16 MiB of dK and dV by head (where heads share keys) and 256 bytes for 8
// heads of 4,096 that share one, of 128, on an H100.
std::int64_t least_workspace(const AttentionProblem& problem);

// The plans to try, best first: slices, with their sums in one order and, where the problem leaves
// that open, in any, that may fit into `room` bytes. The fewer parts the better, since the parts of
// a GPU's work do not fill it as the whole does; of as many, those whose sums have one order.
std::vector<AttentionProblem> candidates(const AttentionProblem& problem, std::int64_t room);

// Where each slice's operands are.
std::vector<AttentionMemory> slices_of(const AttentionProblem& problem,
                                       const AttentionProblem& slice,
                                       const AttentionMemory& memory);

}  // namespace zeroplan::runtime::cuda
