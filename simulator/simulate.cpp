#include "simulator/simulate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/diagnostic.hpp"
#include "model/cost/contention.hpp"
#include "model/cost/device_memory.hpp"
#include "model/graph/traced_graph.hpp"
#include "model/predict/analytic_estimate.hpp"
#include "model/predict/memory.hpp"
#include "model/predict/memory_intervals.hpp"
#include "model/predict/prediction_parts.hpp"
#include "model/predict/stage_work.hpp"
#include "model/predict/step_rates.hpp"
#include "model/predict/verdict.hpp"
#include "simulator/capacity_trials.hpp"
#include "simulator/planned_ranks.hpp"
#include "simulator/played_ranks.hpp"
#include "simulator/rank_simulation.hpp"
#include "simulator/simulation_memo.hpp"

namespace zeroplan::simulator {
namespace {

// Share of the capacity threshold from which on the analytic estimate's peak counts as near: what
// is reserved is seldom less than the analytic estimate says, and where it is less the trial was
// for nothing.
constexpr double kNear = 0.9;

double normal(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

// The z with normal(z) = probability, by bisection.
double quantile(double probability) {
  double low = -8.0;
  double high = 8.0;
  for (int i = 0; i < 60; ++i) {
    const double middle = 0.5 * (low + high);
    (normal(middle) < probability ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

double count(Bytes bytes) { return static_cast<double>(bytes.count()); }

// What is reserved at the peak, beside context and NCCL: what was simulated where every request is
// known, segments expand (hardly anything lies idle between blocks then, whatever the order of
// requests), or another allocator than PyTorch's. Else as runs usually have it, at most what the
// GPU has where the rank runs on it, at least what was simulated where it does not.
Bytes reserved_at_peak(const Plan& plan,
                       const SimulatedRank& simulated,
                       Bytes room,
                       const GpuMemory& gpu) {
  if (!has_torch_allocator(plan)) return gpu.replayed_reserved;
  if (simulates_every_request(plan) || plan.workload.expandable_segments) {
    // Where the rank runs on its GPU the allocator gives back what the GPU does not have.
    const bool runs = simulated.factor >= 1.0;
    return runs ? std::max(gpu.peak_allocated, std::min(gpu.replayed_reserved, room))
                : gpu.replayed_reserved;
  }
  const Bytes usual = usually_reserved(plan, gpu.peak_allocated);
  if (simulated.factor < 1.0) return std::max(usual, gpu.replayed_reserved);
  return std::max(gpu.peak_allocated, std::min(usual, room));
}

// The GPU of a rank as simulated, `analytic` what is not: saving. `reserve`: of the GPU, for
// others; `outside`: context and libraries.
GpuMemory simulated_gpu(const Plan& plan,
                        const SimulatedRank& simulated,
                        Bytes reserve,
                        Bytes outside,
                        const GpuMemory& analytic) {
  const RankSimulation& simulation = simulated.run;
  const auto save = static_cast<std::size_t>(Phase::save);
  GpuMemory gpu;
  gpu.capacity = analytic.capacity;
  gpu.by_phase = simulation.memory.at_peak;
  gpu.by_phase[save] = analytic.by_phase[save];
  for (std::size_t i = 0; i < kPhaseCount; ++i) {
    const Bytes peak = sum(gpu.by_phase[i]);
    if (peak <= gpu.peak_allocated) continue;
    gpu.peak_allocated = peak;
    gpu.peak_phase = static_cast<Phase>(i);
  }
  gpu.replayed_reserved = plan.cluster.gpu.is_cpu()
                              ? gpu.peak_allocated
                              : std::max(simulated.most_reserved, gpu.peak_allocated);
  gpu.peak_reserved = reserved_at_peak(plan, simulated, gpu.capacity - reserve - outside, gpu);
  gpu.static_allocated = simulation.static_allocated;
  gpu.allocator_flushes = simulation.stats.num_alloc_retries;
  gpu.breakdown_at_peak = gpu.by_phase[static_cast<std::size_t>(gpu.peak_phase)];
  at(gpu.breakdown_at_peak, MemoryCategory::cuda_context) = outside;
  at(gpu.breakdown_at_peak, MemoryCategory::fragmentation) = gpu.peak_reserved - gpu.peak_allocated;
  gpu.peak_total = gpu.peak_reserved + outside;
  return gpu;
}

// The factor from which on the plan fits; infinite where host or drives do not let it.
double capacity_threshold(const Plan& plan,
                          const MemoryPrediction& memory,
                          const PredictOptions& options) {
  const Verdict beside = judge(plan, memory, {1.0, Bytes::zero()}, options);
  if (beside.probability <= options.confidence) return std::numeric_limits<double>::infinity();
  const double sd = std::max(1e-6, memory.relative_sd);
  return 1.0 + sd * quantile(options.confidence / beside.probability);
}

double idle(const TimeAccount& time, IdleCause cause) {
  return time.idle[static_cast<std::size_t>(cause)];
}

// Of a step as simulated; `analytic` are the bounds, which know neither what ranks wait for each
// other nor the driver. Ranks that do equal work are taken to be equally fast: `scale` is what
// waiting for the slowest of many nodes takes, the analytic estimate's factor [T4].
StepTime simulated_time(const Plan& plan,
                        const TimeAccount& time,
                        double scale,
                        const StepTime& analytic) {
  const auto scaled = [&](double seconds) { return Seconds::of(scale * seconds); };
  const auto phase = [&](Phase which) {
    return scaled(time.phase[static_cast<std::size_t>(which)]);
  };
  StepTime step;
  step.total = scaled(time.end - time.begin);
  step.lower_bound = std::min(analytic.lower_bound, step.total);
  step.upper_bound = std::max(analytic.upper_bound, step.total);
  step.forward = phase(Phase::forward);
  step.backward = phase(Phase::backward);
  step.optimizer = step.total - step.forward - step.backward;
  step.exposed_communication = scaled(idle(time, IdleCause::communication));
  step.exposed_offload =
      scaled(idle(time, IdleCause::copies) + idle(time, IdleCause::cpu_optimizer) +
             idle(time, IdleCause::host_memory) + idle(time, IdleCause::nvme));
  step.device_memory = scaled(time.device_memory);
  step.bound = bound_of(time);
  fill_rates(plan, step);
  return step;
}

// [T18] What the driver's part of the step adds to the interval's width, and a word on it: at most
// a hundredth of the step goes unmentioned.
void add_device_memory(const Coefficients& c, const RankSimulation& run, PredictedStep& step) {
  constexpr double kWorthAWord = 0.01;
  const TimeAccount& time = run.step;
  if (time.device_calls == 0) return;
  const double calls =
      static_cast<double>(time.device_calls) * device_memory_cost(c).call.seconds();
  const double sd =
      std::hypot(calls * c.relative_sd(Coefficient::gpu_allocation_call_seconds),
                 (time.device_memory - calls) * c.relative_sd(Coefficient::gpu_allocation_rate)) /
      (time.end - time.begin);
  const Seconds center = step.time.total;
  const auto wider = [&](Seconds edge) {
    return std::hypot((edge - center) / center, kNinetyPercent * sd);
  };
  step.interval = {center * std::max(0.0, 1.0 - wider(step.interval.low)),
                   center * (1.0 + wider(step.interval.high))};
  const double share = time.device_memory / (time.end - time.begin);
  if (share < kWorthAWord) return;
  const double percent = 100.0 * share;
  step.warnings.push_back(
      run.stats.num_alloc_retries > 0
          ? phrase(
                "the GPU is nearly full: PyTorch's allocator gives memory back to the driver and "
                "takes it again in every step, {:.0f} % of its time",
                percent)
          : phrase("memory goes back to the driver and is taken again in every step, {:.0f} % of "
                   "its time: the training loop calls torch.cuda.empty_cache()",
                   percent));
}

PredictedStep simulated_step(const Plan& plan,
                             const RankSimulation& run,
                             double scale,
                             const StepPrediction& analytic) {
  PredictedStep step;
  step.time = simulated_time(plan, run.step, scale, analytic.time);
  step.interval = step_interval(step.time.total, analytic.relative_sd);
  step.of_analytic = step.time.total / analytic.time.total;
  add_device_memory(plan.coefficients, run, step);
  return step;
}

}  // namespace

bool is_simulated(const Plan& plan) {
  const EngineConfig& engine = plan.engine;
  const bool swaps = engine.offload_optimizer.device == OffloadDevice::nvme ||
                     engine.offload_parameter.device == OffloadDevice::nvme;
  const bool has_drives = plan.cluster.node.nvme.has_value();
  if (!plan.stages.empty()) return false;  // what its neighbours do is not simulated
  if (is_torch_engine(plan.workload.engine)) return true;
  return runs_deepspeed(plan.workload) && (has_drives || !swaps);
}

namespace {

// A plan's ranks as simulated, and the analytic estimate of their memory.
struct Simulated {
  MemoryPrediction analytic;
  double sd = 0.0;
  SimulatedRank rank;
};

Simulated simulate_ranks(const Plan& plan,
                         const MemoryPrediction& analytic,
                         PlayedRanks& ranks,
                         Bytes outside,
                         const SimulateOptions& options) {
  Simulated simulated;
  simulated.analytic = analytic;
  simulated.sd = std::max(1e-6, analytic.relative_sd);
  CapacityQuestion question{{analytic.gpu.capacity - options.predict.reserve, outside},
                            simulated.sd,
                            capacity_threshold(plan, analytic, options.predict),
                            options.verdict_alone};
  question.threshold_first =
      options.verdict_alone && options.stops_at_the_limit && std::isfinite(question.threshold) &&
      count(analytic.gpu.peak_total) * question.threshold >= kNear * count(question.gpu.room);
  simulated.rank = simulate_on(ranks, question);
  return simulated;
}

void require_rank(const Plan& plan, std::optional<int> rank) {
  const std::int64_t ranks = plan.cluster.total_gpus();
  if (!rank || (*rank >= 0 && *rank < ranks)) return;
  throw InputError({"",
                    "/rank",
                    "a rank below " + std::to_string(ranks),
                    std::to_string(*rank),
                    "ranks count from 0"});
}

// The partitions' rank that the asked one is: ranks of other replicas hold what it does.
std::optional<int> shown_rank(const Plan& plan, const SimulateOptions& options) {
  if (!options.rank) return std::nullopt;
  return *options.rank % partition_ranks(plan.engine);
}

std::vector<PlannedRank> ranks_of(const Plan& plan,
                                  const StepWork& work,
                                  const SimulateOptions& options) {
  if (options.lockstep) return write_rank_programs(plan, work.graph, shown_rank(plan, options));
  std::vector<PlannedRank> alone;
  alone.push_back({.program = write_representative(plan, work.graph)});
  return alone;
}

// Where ranks do not differ, those of a simulation of one and of one side by side are the same.
std::vector<RankPrint>* known_ranks(const Plan& plan, const SimulateOptions& options) {
  if (options.known == nullptr || options.rank) return nullptr;
  const bool several = options.lockstep && ranks_differ(plan);
  return several ? &options.known->side_by_side : &options.known->alone;
}

Bytes outside_of(const MemoryPrediction& memory) {
  return at(memory.gpu.breakdown_at_peak, MemoryCategory::cuda_context);
}

// The GPU of a rank that was simulated; of one that was stopped the analytic estimate's.
ShownMemory shown_memory(const Plan& plan,
                         const Simulated& simulated,
                         Bytes outside,
                         const SimulateOptions& options) {
  const MemoryPrediction& analytic = simulated.analytic;
  if (simulated.rank.stopped) return {analytic.gpu, false, analytic};
  return {simulated_gpu(plan, simulated.rank, options.predict.reserve, outside, analytic.gpu),
          true,
          analytic};
}

// `gpu`: of the same rank. `host`: of the plan.
TightestMemory tightest_memory(const Simulated& simulated,
                               const GpuMemory& gpu,
                               const HostMemory& host,
                               const PredictOptions& options) {
  TightestMemory tightest{simulated.analytic, {}};
  tightest.memory.gpu = gpu;
  tightest.memory.host = host;
  const double factor = simulated.rank.factor;
  const double room = count(gpu.capacity - options.reserve);
  tightest.verdict.probability = normal((factor - 1.0) / simulated.sd);
  tightest.verdict.needed = gpu.peak_total;
  tightest.verdict.margin =
      Bytes::nearest(room / factor * simulated.sd * quantile(options.confidence));
  return tightest;
}

// Memory of a pipeline: that of the stage with the largest peak is shown, that of the first where
// the plan asks for it; the verdict is that of the stage whose GPU could be least smaller, which
// may be another. The time of a step is the analytic estimate's: what stages wait for each other is
// not simulated.
StepResult simulate_pipeline(const Plan& plan, SimulateOptions options) {
  options.stops_at_the_limit = false;  // stages are compared by how far they are from it
  const AnalyticEstimate estimate(plan);
  const MemoryPrediction worst = estimate.memory();
  const Bytes outside = outside_of(worst);
  PredictionParts parts;
  double least = std::numeric_limits<double>::infinity();
  bool first = true;
  for (const StageWork& stage : estimate.stages()) {
    PlayedRanks ranks([&] { return ranks_of(stage.plan, stage.work, options); }, options.memo);
    const Simulated simulated =
        simulate_ranks(stage.plan, predict_memory(stage.plan, stage.work), ranks, outside, options);
    const ShownMemory here = shown_memory(plan, simulated, outside, options);
    if (first || simulated.rank.factor < least) {
      least = simulated.rank.factor;
      parts.tightest = tightest_memory(simulated, here.gpu, worst.host, options.predict);
    }
    const bool larger = !plan.shows_first_stage && here.gpu.peak_total > parts.shown.gpu.peak_total;
    if (first || larger) parts.shown = here;
    first = false;
  }
  parts.step = analytic_step(estimate.time(options.predict));
  parts.step.at_network = estimate.on_networks(usual_networks(plan, options.predict));
  parts.graph_assumptions = estimate.graph().assumptions;
  return assemble(plan, std::move(parts), options.predict);
}

// How fast `step` is on the usual networks where the plan's was assumed: simulated there, or
// changed by as much as the analytic estimate.
std::vector<NetworkAlternative> on_usual_networks(const Plan& plan,
                                                  const StepWork& work,
                                                  const AnalyticEstimate& estimate,
                                                  const SimulateOptions& options,
                                                  const PredictedStep& step) {
  const std::vector<double> networks = usual_networks(plan, options.predict);
  if (!options.other_networks) {
    std::vector<NetworkAlternative> speeds = estimate.on_networks(networks);
    for (NetworkAlternative& there : speeds) there.tokens_per_second_per_gpu /= step.of_analytic;
    return speeds;
  }
  std::vector<NetworkAlternative> speeds;
  for (const double gigabits : networks) {
    Plan changed = plan;
    changed.cluster = on_network(plan.cluster, gigabits);
    PlayedRanks ranks([&] { return ranks_of(changed, work, options); }, options.memo);
    const TimeAccount there = step_of(ranks.together(Bytes::infinite(), /*coarse=*/false));
    const double scale = scaling_factor(plan.cluster.nodes, plan.coefficients);
    const double faster = step.time.total.seconds() / (scale * (there.end - there.begin));
    speeds.push_back({gigabits, step.time.tokens_per_second_per_gpu * faster});
  }
  return speeds;
}

StepResult simulate_plan(const Plan& plan, const SimulateOptions& options) {
  require_rank(plan, options.rank);
  if (!plan.stages.empty()) return simulate_pipeline(plan, options);
  if (!is_simulated(plan)) return predict(plan, options.predict);
  const StepWork work = step_work(plan);
  const AnalyticEstimate estimate(plan, work);
  PlayedRanks ranks(
      [&] { return ranks_of(plan, work, options); }, options.memo, known_ranks(plan, options));
  const MemoryPrediction analytic = estimate.memory();
  const Bytes outside = outside_of(analytic);
  const Simulated simulated = simulate_ranks(plan, analytic, ranks, outside, options);

  PredictionParts parts;
  parts.shown = shown_memory(plan, simulated, outside, options);
  parts.tightest = tightest_memory(simulated, parts.shown.gpu, analytic.host, options.predict);
  const StepPrediction step = estimate.time(options.predict);
  if (simulated.rank.stopped) {
    parts.step = analytic_step(step);
    parts.step.at_network = estimate.on_networks(usual_networks(plan, options.predict));
  } else {
    if (ranks.ranks().size() > 1) parts.shown.gpu.rank = options.rank.value_or(simulated.rank.rank);
    const double scale = scaling_factor(plan.cluster.nodes, plan.coefficients);
    parts.step = simulated_step(plan, simulated.rank.run, scale, step);
    parts.step.at_network = on_usual_networks(plan, work, estimate, options, parts.step);
  }
  parts.graph_assumptions = estimate.graph().assumptions;
  return assemble(plan, std::move(parts), options.predict);
}

}  // namespace

// A document may say that tensors live where those of no chain of layers do (layers that are called
// again and again): it is refused, and is no defect.
StepResult simulate(const Plan& plan, const SimulateOptions& options) {
  if (traced_graph_of(*plan.model) == nullptr) return simulate_plan(plan, options);
  try {
    return simulate_plan(plan, options);
  } catch (const std::logic_error& broken) {
    throw InputError(
        Diagnostic{"",
                   "/model",
                   "blocks that run one after the other, each on what the one before "
                   "gives it",
                   phrase("others in {}: {}", plan.model->architecture, failed_check(broken)),
                   "zeroplan rehearse runs the model's own code"});
  }
}

}  // namespace zeroplan::simulator
