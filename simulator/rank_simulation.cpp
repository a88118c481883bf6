#include "simulator/rank_simulation.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "model/engine/buffers.hpp"
#include "simulator/engines/ddp_writer.hpp"
#include "simulator/engines/deepspeed_writer.hpp"
#include "simulator/engines/fsdp_writer.hpp"

namespace zeroplan {
namespace {

// Plays sections; stops at the first that runs out of memory.
class Player {
 public:
  Player(const RankProgram& rank, const SimulationOptions& options)
      : rank_(rank), loop_(rank.program, allocator_options(rank, options)), options_(options) {
    loop_.record_allocator_events(options.allocator_events);
  }

  RankSimulation run() {
    RankSimulation result;
    const bool ran = play_all(result);
    if (!ran) result.out_of_memory = loop_.out_of_memory();
    result.memory = loop_.memory();
    result.stats = loop_.allocator().stats();
    if (options_.allocator_events != nullptr) result.segments = loop_.allocator().snapshot();
    return result;
  }

 private:
  static AllocatorOptions allocator_options(const RankProgram& rank,
                                            const SimulationOptions& options) {
    AllocatorOptions result;
    result.expandable_segments = rank.expandable_segments;
    result.device_total = options.available;
    result.available = options.available;
    return result;
  }

  bool play_all(RankSimulation& result) {
    if (!loop_.play(rank_.initialisation)) return false;
    for (const StepSections& step : rank_.first_steps) {
      if (!play_step(step)) return false;
    }
    // The host runs ahead of the GPU: the second steady step begins as all later ones do.
    if (!play_step(rank_.steady)) return false;
    result.static_allocated = loop_.memory().allocated;
    if (options_.trial) return true;
    loop_.drain();
    loop_.restart_clock();
    loop_.observe(options_.observer);
    if (!play_step(rank_.steady)) return false;
    loop_.drain();
    result.step = loop_.time();
    return true;
  }

  bool play_step(const StepSections& step) {
    for (const RepeatedSection& part : step.micro_steps) {
      if (!play_part(part)) return false;
    }
    return loop_.play(step.optimizer);
  }

  // Equal micro-steps in a row: once one begins and ends in the same state, the rest are counted.
  bool play_part(const RepeatedSection& part) {
    State before = state();
    for (std::int64_t i = 0; i < part.times; ++i) {
      const TimeAccount account = loop_.account();
      const MemoryStats memory = loop_.allocator().stats();
      if (!loop_.play(part.section)) return false;
      const bool enough = options_.most_repetitions && i + 1 >= *options_.most_repetitions;
      if (enough) {
        if (!options_.trial) loop_.repeat_since(account, memory, part.times - i - 1);
        return true;
      }
      if (!folds() || i + 1 == part.times) continue;
      State after = state();
      if (same(before, after)) {
        loop_.repeat_since(account, memory, part.times - i - 1);
        return true;
      }
      before = std::move(after);
    }
    return true;
  }

  bool folds() const { return options_.fold && options_.observer == nullptr; }

  struct State {
    std::vector<double> loop;
    Fingerprint allocator;
  };
  State state() const {
    return {loop_.relative_state(), loop_.allocator().fingerprint(loop_.clocks())};
  }
  // Times are sums in another order: equal within rounding, against a period of milliseconds.
  static bool same(const State& a, const State& b) {
    constexpr double kRounding = 1e-10;
    return a.allocator == b.allocator &&
           std::equal(a.loop.begin(), a.loop.end(), b.loop.begin(), [](double x, double y) {
             return std::abs(x - y) <= kRounding;
           });
  }

  const RankProgram& rank_;
  EventLoop loop_;
  SimulationOptions options_;
};

}  // namespace

// A pipeline's micro-batches that are played besides those it has alive.
constexpr std::int64_t kSteadyMicroBatches = 3;

RankProgram write_rank_program(const Plan& plan, const StepWork& work) {
  if (plan.workload.engine == TrainingEngine::fsdp) return FsdpWriter(plan, work).write();
  if (plan.workload.engine == TrainingEngine::ddp) return DdpWriter(plan, work).write();
  EngineConfig config = plan.engine;
  config.rank = heaviest_rank(config, plan.engine_parameters);
  if (!plan.stages.empty()) {
    // Between the first micro-batches and the last a pipeline's memory repeats itself.
    const std::int64_t played = live_micro_batches(plan) + kSteadyMicroBatches;
    config.gradient_accumulation_steps =
        static_cast<int>(std::min<std::int64_t>(config.gradient_accumulation_steps, played));
  }
  return DeepSpeedWriter(plan, work, config).write();
}

RankSimulation simulate_rank(const RankProgram& rank, const SimulationOptions& options) {
  return Player(rank, options).run();
}

}  // namespace zeroplan
