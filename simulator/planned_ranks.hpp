// The programs of a plan's ranks: which of them differ, and what each does.
#pragma once

#include <optional>
#include <vector>

#include "base/fingerprint.hpp"
#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"
#include "simulator/engines/rank_program.hpp"

namespace zeroplan::simulator {

// The program of one rank; by default of the heaviest of a DeepSpeed engine, or of any rank of
// FSDP. Of a pipeline's stage: with as many micro-batches as its memory takes to repeat itself, and
// without what its neighbours make it wait for.
RankProgram write_rank_program(const Plan& plan,
                               const ModelGraph& graph,
                               std::optional<int> rank = std::nullopt);

// One of the ranks that are simulated together.
struct PlannedRank {
  // For the ranks that are not simulated: in backward it does what the slowest owner of each bucket
  // does, in the step what its rank does. Its time is theirs; its memory is nobody's.
  bool is_representative = false;
  RankProgram program;
  std::optional<Fingerprint> print;  // of the program, where it was compared with others
  bool is_shown = false;             // its memory is asked for, whichever rank needs most
};

// The ranks of the plan whose programs differ (distinct_ranks()), ascending. Behind them comes one
// representative of all other ranks, where there are two or more. One rank where all are alike:
// stage 3, FSDP, DDP, stage 0, and BF16_Optimizer, whose ranks all scan and clip the gradients of
// the whole model and update partitions of one size (bf16_optimizer.py step, get_grads_for_norm).
// Of a pipeline's stage the heaviest: what stages wait for each other is not simulated. `shown` is
// among them, or one that is equal to it. Precondition: 0 <= shown < partition_ranks().
std::vector<PlannedRank> write_rank_programs(const Plan& plan,
                                             const ModelGraph& graph,
                                             std::optional<int> shown = std::nullopt);

// Do ranks of this plan have programs of their own? Then there are several.
bool ranks_differ(const Plan& plan);

// The one with the most memory where ranks differ, else 0.
int heaviest_rank_of(const Plan& plan);

// The representative rank of a step that is simulated for one rank: the one with the most memory.
RankProgram write_representative(const Plan& plan, const ModelGraph& graph);

// The steady step of that program, of a DeepSpeed engine whose sequences are of one length.
RankProgram write_steady_step(const Plan& plan, const ModelGraph& graph);

}  // namespace zeroplan::simulator
