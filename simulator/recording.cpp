#include "simulator/recording.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "model/hardware/cluster.hpp"
#include "model/step/step_graph.hpp"
#include "simulator/lockstep.hpp"
#include "simulator/memory_snapshot.hpp"
#include "simulator/planned_ranks.hpp"
#include "simulator/rank_simulation.hpp"
#include "simulator/trace.hpp"

namespace zeroplan::simulator {
namespace {

Bytes outside_torch(const StepResult& result) {
  return at(result.gpu.breakdown_at_peak, MemoryCategory::cuda_context);
}

// Of the GPU for tensors; where the plan does not fit, there is no limit.
Bytes available(const StepResult& result) {
  if (result.gpu.peak_total > result.gpu.capacity) return Bytes::infinite();
  return result.gpu.capacity - outside_torch(result);
}

// The plan's ranks, simulated again in lockstep; whose memory `result` tells stands first.
class Replay {
 public:
  Replay(const Plan& plan, const StepResult& result)
      : plan_(plan),
        ranks_(write_rank_programs(plan, step_graph(plan), result.gpu.rank)),
        recorders_(ranks_.size()) {
    const auto shown = std::find_if(
        ranks_.begin(), ranks_.end(), [&](const PlannedRank& rank) { return rank.is_shown; });
    if (shown != ranks_.end()) std::rotate(ranks_.begin(), shown, shown + 1);
    std::vector<LockstepRank> together;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      together.push_back({&ranks_[i].program,
                          ranks_[i].is_representative,
                          &recorders_[i],
                          i == 0 ? &allocator_events_ : nullptr});
    }
    SimulationOptions options;
    options.available = available(result);
    segments_ = std::move(simulate_ranks(together, options).front().segments);
  }

  std::string trace() const {
    std::vector<TracedRank> traced;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      traced.push_back({title_of(ranks_[i]),
                        &ranks_[i].program.program,
                        &recorders_[i].timeline(),
                        !ranks_[i].is_representative});
    }
    return chrome_trace(traced);
  }
  std::string snapshot() const {
    return memory_snapshot(ranks_.front().program.program, allocator_events_, segments_);
  }
  Program take_program() { return std::move(ranks_.front().program.program); }
  const Timeline& timeline() const { return recorders_.front().timeline(); }

 private:
  std::string title_of(const PlannedRank& rank) const {
    const std::string job =
        "ZeRO-" + std::to_string(plan_.engine.stage) + " on " + short_name(plan_.cluster);
    if (ranks_.size() == 1) return job;
    if (rank.is_representative) return "the other ranks (the slowest owner of each bucket): " + job;
    return "rank " + std::to_string(rank.program.rank) + ": " + job;
  }

  const Plan& plan_;
  std::vector<PlannedRank> ranks_;
  std::vector<TraceRecorder> recorders_;
  std::vector<AllocatorEvent> allocator_events_;
  std::vector<SegmentSnapshot> segments_;
};

}  // namespace

Recording record_run(const Plan& plan, const StepResult& result) {
  const Replay replay(plan, result);
  return {replay.trace(), replay.snapshot()};
}

SimulatedStep simulate_step(const Plan& plan, const StepResult& result) {
  Replay replay(plan, result);
  return {replay.take_program(), replay.timeline(), outside_torch(result)};
}

}  // namespace zeroplan::simulator
