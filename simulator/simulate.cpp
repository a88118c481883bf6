#include "simulator/simulate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "model/cost/contention.hpp"
#include "model/cost/device_memory.hpp"
#include "model/predict/memory.hpp"
#include "model/predict/memory_intervals.hpp"
#include "model/predict/phase_verdict.hpp"
#include "model/predict/predict_work.hpp"
#include "model/predict/stage_work.hpp"
#include "model/predict/verdict.hpp"
#include "simulator/capacity_trials.hpp"
#include "simulator/planned_ranks.hpp"
#include "simulator/rank_simulation.hpp"
#include "simulator/simulation_memo.hpp"

namespace zeroplan {
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

// What is reserved at the peak, beside context and NCCL: what was played where every request is
// known, or another allocator than PyTorch's. Else as runs usually have it, at most what the GPU
// has where the rank runs on it, at least what was played where it does not.
Bytes reserved_at_peak(const Plan& plan,
                       const PlayedRank& played,
                       Bytes room,
                       const GpuMemory& gpu) {
  if (!has_torch_allocator(plan)) return gpu.replayed_reserved;
  if (plays_every_request(plan)) {
    // Where the rank runs on its GPU the allocator gives back what the GPU does not have.
    const bool runs = played.factor >= 1.0;
    return runs ? std::max(gpu.peak_allocated, std::min(gpu.replayed_reserved, room))
                : gpu.replayed_reserved;
  }
  const Bytes usual = usually_reserved(plan, gpu.peak_allocated);
  if (played.factor < 1.0) return std::max(usual, gpu.replayed_reserved);
  return std::max(gpu.peak_allocated, std::min(usual, room));
}

// `reserve`: of the GPU, for others; `outside`: context and libraries.
void take_memory(
    const Plan& plan, const PlayedRank& played, Bytes reserve, Bytes outside, GpuMemory& gpu) {
  const RankSimulation& simulation = played.run;
  const CategoryBytes save = gpu.by_phase[static_cast<std::size_t>(Phase::save)];
  gpu.by_phase = simulation.memory.at_peak;
  gpu.by_phase[static_cast<std::size_t>(Phase::save)] = save;
  gpu.peak_allocated = Bytes::zero();
  for (std::size_t i = 0; i < kPhaseCount; ++i) {
    const Bytes peak = sum(gpu.by_phase[i]);
    if (peak <= gpu.peak_allocated) continue;
    gpu.peak_allocated = peak;
    gpu.peak_phase = static_cast<Phase>(i);
  }
  gpu.replayed_reserved = plan.cluster.gpu.is_cpu()
                              ? gpu.peak_allocated
                              : std::max(played.most_reserved, gpu.peak_allocated);
  gpu.peak_reserved = reserved_at_peak(plan, played, gpu.capacity - reserve - outside, gpu);
  gpu.static_allocated = simulation.static_allocated;
  gpu.allocator_flushes = simulation.stats.num_alloc_retries;
  gpu.breakdown_at_peak = gpu.by_phase[static_cast<std::size_t>(gpu.peak_phase)];
  at(gpu.breakdown_at_peak, MemoryCategory::cuda_context) = outside;
  at(gpu.breakdown_at_peak, MemoryCategory::fragmentation) = gpu.peak_reserved - gpu.peak_allocated;
  gpu.peak_total = gpu.peak_reserved + outside;
}

// The factor from which on the plan fits; infinite where host or drives do not let it.
double decisive_factor(const Plan& plan,
                       const MemoryPrediction& memory,
                       const PredictOptions& options) {
  StepResult beside;
  judge(plan, memory, {1.0, Bytes::zero()}, options, beside);
  if (beside.fit_probability <= options.confidence) return std::numeric_limits<double>::infinity();
  const double sd = std::max(1e-6, memory.relative_sd);
  return 1.0 + sd * quantile(options.confidence / beside.fit_probability);
}

double idle(const TimeAccount& time, IdleCause cause) {
  return time.idle[static_cast<std::size_t>(cause)];
}

// Rates follow the time: `step` holds those of the analytic estimate's total. Ranks that do equal
// work are taken to be equally fast: waiting for the slowest of many nodes is the analytic
// estimate's factor [T4].
void take_time(const TimeAccount& time, double scale, StepTime& step) {
  const double ratio = step.total.seconds() / (scale * (time.end - time.begin));
  const auto scaled = [&](double seconds) { return Seconds::of(scale * seconds); };
  const auto phase = [&](Phase which) {
    return scaled(time.phase[static_cast<std::size_t>(which)]);
  };
  step.total = scaled(time.end - time.begin);
  // The analytic estimate's bounds know neither what ranks wait for each other nor the driver.
  step.lower_bound = std::min(step.lower_bound, step.total);
  step.upper_bound = std::max(step.upper_bound, step.total);
  step.forward = phase(Phase::forward);
  step.backward = phase(Phase::backward);
  step.optimizer = step.total - step.forward - step.backward;
  step.exposed_communication = scaled(idle(time, IdleCause::communication));
  step.exposed_offload =
      scaled(idle(time, IdleCause::copies) + idle(time, IdleCause::cpu_optimizer) +
             idle(time, IdleCause::host_memory) + idle(time, IdleCause::nvme));
  step.device_memory = scaled(time.device_memory);
  step.bound = bound_of(time);
  step.tokens_per_second_per_gpu *= ratio;
  step.samples_per_second *= ratio;
  step.model_flops_per_gpu = step.model_flops_per_gpu * ratio;
  step.mfu *= ratio;
}

// [T18] What the driver's part of the step adds to the interval's width, and a word on it: at most
// a hundredth of the step goes unmentioned.
void take_device_memory(const Coefficients& c, const TimeAccount& time, StepResult& result) {
  constexpr double kWorthAWord = 0.01;
  if (time.device_calls == 0) return;
  const double calls =
      static_cast<double>(time.device_calls) * device_memory_cost(c).call.seconds();
  const double sd =
      std::hypot(calls * c.relative_sd(Coefficient::gpu_allocation_call_seconds),
                 (time.device_memory - calls) * c.relative_sd(Coefficient::gpu_allocation_rate)) /
      (time.end - time.begin);
  const Seconds center = result.step.total;
  const auto wider = [&](Seconds edge) {
    return std::hypot((edge - center) / center, kNinetyPercent * sd);
  };
  result.step_interval = {center * std::max(0.0, 1.0 - wider(result.step_interval.low)),
                          center * (1.0 + wider(result.step_interval.high))};
  const double share = time.device_memory / (time.end - time.begin);
  if (share < kWorthAWord) return;
  result.warnings.push_back(
      phrase("the GPU is nearly full: PyTorch's allocator gives memory back to the driver and "
             "takes it again in every step, {:.0f} % of its time",
             100.0 * share));
}

template <typename T>
Interval<T> around(const Interval<T>& interval, double old_center, double new_center) {
  return {interval.low * (new_center / old_center), interval.high * (new_center / old_center)};
}

}  // namespace

bool is_simulated(const Plan& plan) {
  const EngineConfig& engine = plan.engine;
  const bool swaps = engine.offload_optimizer.device == OffloadDevice::nvme ||
                     engine.offload_parameter.device == OffloadDevice::nvme;
  const bool has_drives = plan.cluster.node.nvme.has_value();
  if (!plan.stages.empty()) return false;  // what its neighbours do is not played
  if (is_torch_engine(plan.workload.engine)) return true;
  return runs_deepspeed(plan.workload) && (has_drives || !swaps);
}

namespace {

// A plan's ranks, played, and what is asked about them.
struct Played {
  MemoryPrediction memory;  // the analytic estimate's, for what is not played
  double sd = 0.0;
  std::shared_ptr<const PlayedRank> rank;
};

Played play(const Plan& plan,
            const StepWork& work,
            const std::vector<PlannedRank>& ranks,
            Bytes outside,
            const SimulateOptions& options) {
  Played played;
  played.memory = predict_memory(plan, work);
  played.sd = std::max(1e-6, played.memory.relative_sd);
  CapacityQuestion question{{plan.cluster.gpu.memory.value - options.predict.reserve, outside},
                            played.sd,
                            decisive_factor(plan, played.memory, options.predict),
                            options.verdict_alone};
  question.decisive_first =
      options.verdict_alone && options.stops_at_the_limit && std::isfinite(question.decisive) &&
      count(played.memory.gpu.peak_total) * question.decisive >= kNear * count(question.gpu.room);
  if (options.memo == nullptr) {
    played.rank = std::make_shared<const PlayedRank>(play_on(ranks, question));
    return played;
  }
  const Fingerprint key = fingerprint_of(ranks, question);
  played.rank = options.memo->find(key);
  if (!played.rank) played.rank = options.memo->keep(key, play_on(ranks, question));
  return played;
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
  if (options.lockstep) return write_rank_programs(plan, work, shown_rank(plan, options));
  std::vector<PlannedRank> alone;
  alone.push_back({false, write_representative(plan, work)});
  return alone;
}

// Memory and verdict of what was played, in place of the analytic estimate's.
void take_played_memory(const Plan& plan,
                        Played played,
                        Bytes outside,
                        const PredictOptions& options,
                        StepResult& result) {
  if (!played.rank->stopped) {
    take_memory(plan, *played.rank, options.reserve, outside, result.gpu);
    take_memory_intervals(plan, played.memory, true, result);
  }
  const double room = count(result.gpu.capacity - options.reserve);
  GpuVerdict verdict;
  verdict.probability = normal((played.rank->factor - 1.0) / played.sd);
  verdict.needed =
      Bytes::nearest(room / played.rank->factor * (1.0 + played.sd * quantile(options.confidence)));
  played.memory.gpu = result.gpu;
  played.memory.host = result.host;
  result.limits.clear();
  judge(plan, played.memory, verdict, options, result);
  judge_phases(plan, played.memory, verdict, options, result);
}

// Memory of a pipeline: that of the stage with the largest peak is shown, that of the first where
// the plan asks for it; the verdict is that of the stage whose GPU could be least smaller, which
// may be another. The time of a step is the analytic estimate's: what stages wait for each other is
// not played.
StepResult simulate_pipeline(const Plan& plan, SimulateOptions options) {
  options.stops_at_the_limit = false;  // stages are compared by how far they are from it
  StepResult result = predict(plan, options.predict);
  const Bytes outside = at(result.gpu.breakdown_at_peak, MemoryCategory::cuda_context);
  std::optional<Played> tightest, shown;
  Bytes largest;
  for (const StageWork& stage : stage_works(plan)) {
    const std::vector<PlannedRank> ranks = ranks_of(stage.plan, stage.work, options);
    Played played = play(stage.plan, stage.work, ranks, outside, options);
    GpuMemory gpu = result.gpu;
    take_memory(plan, *played.rank, options.predict.reserve, outside, gpu);
    const bool larger = !plan.shows_first_stage && gpu.peak_total > largest;
    if (!shown || larger) {
      shown = played;
      largest = gpu.peak_total;
    }
    if (!tightest || played.rank->factor < tightest->rank->factor) tightest = std::move(played);
  }
  take_played_memory(plan, std::move(*tightest), outside, options.predict, result);
  take_memory(plan, *shown->rank, options.predict.reserve, outside, result.gpu);
  take_memory_intervals(plan, shown->memory, true, result);
  return result;
}

}  // namespace

StepResult simulate(const Plan& plan, const SimulateOptions& options) {
  require_rank(plan, options.rank);
  if (!plan.stages.empty()) return simulate_pipeline(plan, options);
  const StepWork work = step_work(plan);
  StepResult result = predict(plan, work, options.predict);
  if (!is_simulated(plan)) return result;
  const std::vector<PlannedRank> ranks = ranks_of(plan, work, options);
  const Bytes outside = at(result.gpu.breakdown_at_peak, MemoryCategory::cuda_context);
  Played played = play(plan, work, ranks, outside, options);
  if (played.rank->stopped) {
    take_played_memory(plan, std::move(played), outside, options.predict, result);
    return result;
  }
  if (ranks.size() > 1) result.gpu.rank = options.rank.value_or(played.rank->rank);

  const double old_total = result.step.total.seconds();
  const double old_speed = result.step.tokens_per_second_per_gpu;
  const double scale = scaling_factor(plan.cluster.nodes, plan.coefficients);
  take_time(played.rank->run.step, scale, result.step);
  const double new_total = result.step.total.seconds();
  result.step_interval = around(result.step_interval, old_total, new_total);
  take_device_memory(plan.coefficients, played.rank->run.step, result);
  if (result.job) {
    for (const JobPart part : {JobPart::steps, JobPart::padding}) {
      (*result.job)[part] = (*result.job)[part] * (new_total / old_total);
    }
  }
  take_played_memory(plan, std::move(played), outside, options.predict, result);

  if (!options.other_networks) {
    for (NetworkAlternative& other : result.at_network) {
      other.tokens_per_second_per_gpu *= result.step.tokens_per_second_per_gpu / old_speed;
    }
    return result;
  }
  for (NetworkAlternative& other : result.at_network) {
    Plan changed = plan;
    changed.cluster.inter_node.bandwidth.value =
        BytesPerSecond::of(other.gigabits_per_second * 1e9 / 8.0);
    const TimeAccount there = unlimited_step(ranks_of(changed, work, options));
    other.tokens_per_second_per_gpu =
        result.step.tokens_per_second_per_gpu * new_total / (scale * (there.end - there.begin));
  }
  return result;
}

}  // namespace zeroplan
