#include "simulator/recording.hpp"

#include <vector>

#include "model/hardware/cluster.hpp"
#include "simulator/memory_snapshot.hpp"
#include "simulator/rank_simulation.hpp"
#include "simulator/trace.hpp"

namespace zeroplan {

Recording record_run(const Plan& plan, const StepResult& result) {
  const StepWork work = step_work(plan);
  const RankProgram rank = write_rank_program(plan, work);
  const Bytes outside = at(result.gpu.breakdown_at_peak, MemoryCategory::cuda_context);
  TraceRecorder recorder;
  std::vector<AllocatorEvent> events;
  SimulationOptions options;
  options.observer = &recorder;
  options.allocator_events = &events;
  if (result.gpu.peak_total <= result.gpu.capacity) {
    options.available = result.gpu.capacity - outside;
  }
  const RankSimulation played = simulate_rank(rank, options);
  const std::string title =
      "ZeRO-" + std::to_string(plan.engine.stage) + " on " + short_name(plan.cluster);
  return {recorder.chrome_trace(rank.program, title),
          memory_snapshot(rank.program, events, played.segments)};
}

}  // namespace zeroplan
