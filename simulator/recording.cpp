#include "simulator/recording.hpp"

#include <utility>
#include <vector>

#include "model/hardware/cluster.hpp"
#include "simulator/memory_snapshot.hpp"
#include "simulator/rank_simulation.hpp"
#include "simulator/trace.hpp"

namespace zeroplan {
namespace {

Bytes outside_torch(const StepResult& result) {
  return at(result.gpu.breakdown_at_peak, MemoryCategory::cuda_context);
}

// Of the card for tensors; where the plan does not fit, there is no limit.
Bytes available(const StepResult& result) {
  if (result.gpu.peak_total > result.gpu.capacity) return Bytes::infinite();
  return result.gpu.capacity - outside_torch(result);
}

}  // namespace

Recording record_run(const Plan& plan, const StepResult& result) {
  const StepWork work = step_work(plan);
  const RankProgram rank = write_rank_program(plan, work);
  TraceRecorder recorder;
  std::vector<AllocatorEvent> events;
  SimulationOptions options;
  options.observer = &recorder;
  options.allocator_events = &events;
  options.available = available(result);
  const RankSimulation played = simulate_rank(rank, options);
  const std::string title =
      "ZeRO-" + std::to_string(plan.engine.stage) + " on " + short_name(plan.cluster);
  return {recorder.chrome_trace(rank.program, title),
          memory_snapshot(rank.program, events, played.segments)};
}

PlayedStep play_step(const Plan& plan, const StepResult& result) {
  const StepWork work = step_work(plan);
  RankProgram rank = write_rank_program(plan, work);
  TraceRecorder recorder;
  SimulationOptions options;
  options.observer = &recorder;
  options.available = available(result);
  simulate_rank(rank, options);
  return {std::move(rank.program), recorder.timeline(), outside_torch(result)};
}

}  // namespace zeroplan
