// Plays a plan's rank from start to steady state: what it holds and how long a step takes.
#pragma once

#include <optional>
#include <vector>

#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"
#include "model/predict/step_work.hpp"
#include "simulator/engines/rank_program.hpp"
#include "simulator/event_loop.hpp"

namespace zeroplan {

struct SimulationOptions {
  // Of the card for this process's tensors; infinite: the peaks without a limit.
  Bytes available = Bytes::infinite();
  // Equal micro-steps in a row are played until the state repeats, then counted. Off: all played.
  bool fold = true;
  // Near a card's limit every flush leaves the allocator in another state, so that nothing folds,
  // while what one micro-step needs does not grow. After so many equal micro-steps in a row the
  // rest are taken to be as the last one. Absent: all are played that do not fold.
  std::optional<std::int64_t> most_repetitions = std::nullopt;
  // Only whether it runs is asked: ends with the first steady step, and the rest of equal
  // micro-steps is left out. No times.
  bool trial = false;
  TimelineObserver* observer = nullptr;                     // gets the timed step, unfolded
  std::vector<AllocatorEvent>* allocator_events = nullptr;  // gets all of the run
};

struct RankSimulation {
  MemoryAccount memory;
  MemoryStats stats;       // of the allocator, from the start to the end of a steady step
  Bytes static_allocated;  // between steps
  TimeAccount step;        // of one steady step
  std::vector<SegmentSnapshot> segments;         // at the end, where events were asked for
  std::optional<LoopOutOfMemory> out_of_memory;  // then the rest is what was seen until there
};

// The program of one rank; by default of the heaviest of a DeepSpeed engine, or of any rank of
// FSDP. Of a pipeline's stage: with as many micro-batches as its memory takes to repeat itself, and
// without what its neighbours make it wait for.
RankProgram write_rank_program(const Plan& plan,
                               const StepWork& work,
                               std::optional<int> rank = std::nullopt);

// A rank of those that are played beside each other.
struct PlannedRank {
  // For the ranks that are not played: in backward it does what the slowest owner of each bucket
  // does, in the step what its rank does. Its time is theirs; its memory is nobody's.
  bool stands_in = false;
  RankProgram program;
  bool is_shown = false;  // its memory is asked for, whichever rank needs most
};

// The ranks of the plan whose programs differ (distinct_ranks()), ascending. Behind them comes one
// representative of all other ranks, where there are two or more. One rank where all are alike:
// stage 3, FSDP, DDP, stage 0, and BF16_Optimizer, whose ranks all scan and clip the gradients of
// the whole model and update partitions of one size (bf16_optimizer.py step, get_grads_for_norm).
// Of a pipeline's stage the heaviest: what stages wait for each other is not played. `shown` is
// among them, or one that is equal to it. Precondition: 0 <= shown < partition_ranks().
std::vector<PlannedRank> write_rank_programs(const Plan& plan,
                                             const StepWork& work,
                                             std::optional<int> shown = std::nullopt);

// Do ranks of this plan have programs of their own? Then there are several.
bool ranks_differ(const Plan& plan);

// The one with the most memory where ranks differ, else 0.
int heaviest_rank_of(const Plan& plan);

// One rank for all of them, where one has to do: the heaviest, which stands in for the others too.
RankProgram write_representative(const Plan& plan, const StepWork& work);

// One rank whose peers keep up.
RankSimulation simulate_rank(const RankProgram& rank, const SimulationOptions& options = {});

}  // namespace zeroplan
