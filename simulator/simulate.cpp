#include "simulator/simulate.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "model/cost/contention.hpp"
#include "model/cost/device_memory.hpp"
#include "model/predict/memory.hpp"
#include "model/predict/memory_intervals.hpp"
#include "model/predict/stage_work.hpp"
#include "model/predict/verdict.hpp"
#include "simulator/rank_simulation.hpp"
#include "simulator/simulation_memo.hpp"

namespace zeroplan {
namespace {

// Standard deviations beyond which nobody asks whether it fits.
constexpr double kFarTail = 3.5;

// Equal micro-steps in a row that are played where whether it runs is asked, or a coarse time.
// Assumed: what fails fails within them, and none that follows takes longer
// (tests/property/simulation_property.cpp compares with all of them).
constexpr std::int64_t kPlayedMicroSteps = 4;

// Of a factor by which a card can be smaller, between two ways to say that it is enough.
constexpr double kRounding = 1e-9;

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

// A card, of which context and libraries take `outside`.
struct Card {
  Bytes room;
  Bytes outside;
};

// On a card smaller by `factor`; absent: it does not run there.
std::optional<RankSimulation> run_on_smaller(const RankProgram& rank,
                                             const Card& card,
                                             double factor,
                                             SimulationOptions options) {
  const double available = count(card.room) / factor - count(card.outside);
  if (available <= 0.0) return std::nullopt;
  options.available = Bytes::nearest(available);
  RankSimulation simulation = simulate_rank(rank, options);
  if (simulation.out_of_memory) return std::nullopt;
  return simulation;
}

bool runs_on_smaller(const RankProgram& rank, const Card& card, double factor) {
  const SimulationOptions trial{.most_repetitions = kPlayedMicroSteps, .trial = true};
  return run_on_smaller(rank, card, factor, trial).has_value();
}

// Plays one rank on cards of different size.
class Trials {
 public:
  Trials(const RankProgram& rank, const Card& card)
      : rank_(rank), card_(card), unlimited_(simulate_rank(rank)) {}

  const RankSimulation& unlimited() const { return unlimited_; }

  // The run on the card; absent: it does not run there. `coarse`: of many equal micro-steps that do
  // not fold, the rest are taken to be as one of them.
  std::optional<RankSimulation> on_card(bool coarse) const {
    SimulationOptions options;
    if (coarse) options.most_repetitions = kPlayedMicroSteps;
    return run_on_smaller(rank_, card_, 1.0, options);
  }

  struct Asked {
    double low = 0.0;
    double high = 0.0;
    double precision = 0.0;         // of the answer
    double decisive = 0.0;          // the plan fits from here on
    bool verdict_alone = false;     // it is enough to know on which side of it the answer lies
    bool runs_at_decisive = false;  // is known already
  };
  // Largest factor by which the card can be smaller, between `asked.low` and `asked.high`. Which
  // factors run is not monotone to the last byte: on which side of the decisive one the answer lies
  // is tried at that one, whoever asks.
  double largest_factor(const Asked& asked) const {
    // Whatever is reserved without a limit surely runs; less than what is allocated never does.
    const MemoryStats& peaks = unlimited_.stats;
    const double runs = count(card_.room) / count(peaks.peak_reserved() + card_.outside);
    const double fails = count(card_.room) / count(peaks.peak_allocated() + card_.outside);
    if (fails <= asked.low) return fails;
    if (runs >= asked.high || fails <= runs) return runs;
    double low = std::max(runs, asked.low);
    double high = std::min(fails, asked.high);
    if (low > runs && !runs_on_smaller(low)) return low;
    const double decisive = asked.decisive + kRounding;
    const bool open = low < decisive && decisive < high;
    const bool fits = open && (asked.runs_at_decisive || runs_on_smaller(decisive));
    if (asked.verdict_alone) return fits ? decisive : low;
    while (high - low > asked.precision) {
      const double middle = 0.5 * (low + high);
      (runs_on_smaller(middle) ? low : high) = middle;
    }
    if (!open) return low;
    return fits ? std::max(low, decisive) : std::min(low, asked.decisive - kRounding);
  }

 private:
  bool runs_on_smaller(double factor) const {
    return zeroplan::runs_on_smaller(rank_, card_, factor);
  }

  const RankProgram& rank_;
  Card card_;
  RankSimulation unlimited_;
};

// What is reserved at the peak, beside context and NCCL: as runs usually have it, at most what the
// card has where the rank runs on it, at least what was played where it does not. Another
// allocator than PyTorch's is played exactly.
Bytes reserved_at_peak(const Plan& plan,
                       const PlayedRank& played,
                       Bytes room,
                       const GpuMemory& gpu) {
  if (!has_torch_allocator(plan)) return gpu.replayed_reserved;
  const Bytes usual = usually_reserved(plan, gpu.peak_allocated);
  if (played.factor < 1.0) return std::max(usual, gpu.replayed_reserved);
  return std::max(gpu.peak_allocated, std::min(usual, room));
}

// `reserve`: of the card, for others; `outside`: context and libraries.
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
                              : std::max(simulation.stats.peak_reserved(), gpu.peak_allocated);
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

Bound bound_of(const TimeAccount& time) {
  const std::pair<double, Bound> shares[] = {
      {time.compute_busy - time.contention, Bound::compute},
      {idle(time, IdleCause::dispatch), Bound::dispatch},
      {idle(time, IdleCause::communication) + time.contention, Bound::communication},
      {idle(time, IdleCause::copies), Bound::pcie},
      {idle(time, IdleCause::cpu_optimizer), Bound::cpu_optimizer},
      {idle(time, IdleCause::host_memory), Bound::host},
      {idle(time, IdleCause::nvme), Bound::nvme}};
  return std::max_element(std::begin(shares),
                          std::end(shares),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

// Rates follow the time: `step` holds those of the closed form's total. One rank is played: waiting
// for the slowest of many nodes is the closed form's factor [T4].
void take_time(const TimeAccount& time, double scale, StepTime& step) {
  const double ratio = step.total.seconds() / (scale * (time.end - time.begin));
  const auto scaled = [&](double seconds) { return Seconds::of(scale * seconds); };
  const auto phase = [&](Phase which) {
    return scaled(time.phase[static_cast<std::size_t>(which)]);
  };
  step.total = scaled(time.end - time.begin);
  step.forward = phase(Phase::forward);
  step.backward = phase(Phase::backward);
  step.optimizer = step.total - step.forward - step.backward;
  step.exposed_communication = scaled(idle(time, IdleCause::communication));
  step.exposed_offload =
      scaled(idle(time, IdleCause::copies) + idle(time, IdleCause::cpu_optimizer) +
             idle(time, IdleCause::host_memory) + idle(time, IdleCause::nvme));
  step.bound = bound_of(time);
  step.tokens_per_second_per_gpu *= ratio;
  step.samples_per_second *= ratio;
  step.model_flops_per_gpu = step.model_flops_per_gpu * ratio;
  step.mfu *= ratio;
}

// [T18] What the driver takes besides, where the card is nearly full: the step's time leaves it
// out, its interval reaches as far. Less than a hundredth of the step goes unmentioned.
void take_device_memory(const Coefficients& c, const TimeAccount& time, StepResult& result) {
  constexpr double kWorthAWord = 0.01;
  if (time.device_calls == 0) return;
  const double calls =
      static_cast<double>(time.device_calls) * device_memory_cost(c).call.seconds();
  const double sd =
      std::hypot(calls * c.relative_sd(Coefficient::gpu_allocation_call_seconds),
                 (time.device_memory - calls) * c.relative_sd(Coefficient::gpu_allocation_rate));
  result.step_interval.high += Seconds::of(time.device_memory + kNinetyPercent * sd);
  const double share = time.device_memory / (time.end - time.begin);
  if (share < kWorthAWord) return;
  result.warnings.push_back(
      fmt::format("the card is nearly full: in every step PyTorch's allocator gives memory back to "
                  "the driver and takes it again, which is not in the step's time and makes it "
                  "about {:.0f} % longer",
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
  const TrainingEngine runs = plan.workload.engine;
  if (runs == TrainingEngine::fsdp || runs == TrainingEngine::ddp) return true;
  return runs_deepspeed(plan.workload) && (has_drives || !swaps);
}

namespace {

// A plan's rank, played, and what is asked about it.
struct Played {
  MemoryPrediction memory;  // the closed form's, for what is not played
  double sd = 0.0;
  std::shared_ptr<const PlayedRank> rank;
};

// The card, and how closely it is asked for.
struct Question {
  Card card;
  double sd = 0.0;
  double decisive = 0.0;  // factor by which the card must be smaller for the plan to fit
  bool verdict_alone = false;
  bool decisive_first = false;  // and nothing else where it does not run there
};

// Share of the deciding card from which on the closed form's peak counts as near: what is reserved
// is seldom less than the closed form says, and where it is less the trial was for nothing.
constexpr double kNear = 0.9;

// What does not run on the deciding card does not fit: what is reserved without a limit is more
// than that card has, or it would have run as it does without a limit.
PlayedRank play(const RankProgram& rank, const Question& question) {
  const double sd = question.sd;
  PlayedRank played;
  if (question.decisive_first &&
      !runs_on_smaller(rank, question.card, question.decisive + kRounding)) {
    played.factor = std::min(1.0 - kFarTail * sd, question.decisive - kRounding);
    played.stopped = true;
    return played;
  }
  const Trials trials(rank, question.card);
  played.factor = trials.largest_factor({1.0 - kFarTail * sd,
                                         1.0 + kFarTail * sd,
                                         0.25 * sd,
                                         question.decisive,
                                         question.verdict_alone,
                                         question.decisive_first});
  const bool unlimited_fits =
      trials.unlimited().stats.peak_reserved() + question.card.outside <= question.card.room;
  const bool wanted = !question.verdict_alone || played.factor >= question.decisive - kRounding;
  std::optional<RankSimulation> limited;
  if (!unlimited_fits && played.factor >= 1.0 && wanted) {
    limited = trials.on_card(question.verdict_alone);
    // It runs on a smaller card by luck alone.
    if (!limited) played.factor = 1.0 - kRounding;
  }
  played.run = limited ? *limited : trials.unlimited();
  return played;
}

Fingerprint fingerprint_of(const RankProgram& rank, const Question& question) {
  Fingerprint print = fingerprint(rank);
  print.add(static_cast<std::uint64_t>(question.card.room.count()));
  print.add(static_cast<std::uint64_t>(question.card.outside.count()));
  print.add(std::bit_cast<std::uint64_t>(question.sd));
  print.add(std::bit_cast<std::uint64_t>(question.decisive));
  print.add(static_cast<std::uint64_t>(question.verdict_alone));
  print.add(static_cast<std::uint64_t>(question.decisive_first));
  return print;
}

Played play(const Plan& plan,
            const StepWork& work,
            const RankProgram& rank,
            Bytes outside,
            const SimulateOptions& options) {
  Played played;
  played.memory = predict_memory(plan, work);
  played.sd = std::max(1e-6, played.memory.relative_sd);
  Question question{{plan.cluster.gpu.memory.value - options.predict.reserve, outside},
                    played.sd,
                    decisive_factor(plan, played.memory, options.predict),
                    options.verdict_alone};
  question.decisive_first =
      options.verdict_alone && options.stops_at_the_limit && std::isfinite(question.decisive) &&
      count(played.memory.gpu.peak_total) * question.decisive >= kNear * count(question.card.room);
  if (options.memo == nullptr) {
    played.rank = std::make_shared<const PlayedRank>(play(rank, question));
    return played;
  }
  const Fingerprint key = fingerprint_of(rank, question);
  played.rank = options.memo->find(key);
  if (!played.rank) played.rank = options.memo->keep(key, play(rank, question));
  return played;
}

// Memory and verdict of what was played, in place of the closed form's.
void take_played_memory(const Plan& plan,
                        Played played,
                        Bytes outside,
                        const PredictOptions& options,
                        StepResult& result) {
  if (!played.rank->stopped) {
    take_memory(plan, *played.rank, options.reserve, outside, result.gpu);
    take_memory_intervals(plan, played.memory, result);
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
}

// Memory of a pipeline: of its stages, the one whose card could be least smaller; that of the first
// is shown where the plan asks for it, and the verdict is the former's. The time of a step is the
// closed form's: what stages wait for each other is not played.
StepResult simulate_pipeline(const Plan& plan, SimulateOptions options) {
  options.stops_at_the_limit = false;  // stages are compared by how far they are from it
  StepResult result = predict(plan, options.predict);
  const Bytes outside = at(result.gpu.breakdown_at_peak, MemoryCategory::cuda_context);
  std::optional<Played> worst, first;
  for (const StageWork& stage : stage_works(plan)) {
    const RankProgram rank = write_rank_program(stage.plan, stage.work);
    Played played = play(stage.plan, stage.work, rank, outside, options);
    const bool tighter =
        !worst || played.rank->factor < worst->rank->factor ||
        (played.rank->factor == worst->rank->factor &&
         played.rank->run.stats.peak_reserved() > worst->rank->run.stats.peak_reserved());
    if (plan.shows_first_stage && !first) first = played;
    if (tighter) worst = std::move(played);
  }
  take_played_memory(plan, std::move(*worst), outside, options.predict, result);
  if (first) {
    take_memory(plan, *first->rank, options.predict.reserve, outside, result.gpu);
    take_memory_intervals(plan, first->memory, result);
  }
  return result;
}

}  // namespace

StepResult simulate(const Plan& plan, const SimulateOptions& options) {
  if (!plan.stages.empty()) return simulate_pipeline(plan, options);
  StepResult result = predict(plan, options.predict);
  if (!is_simulated(plan)) return result;
  const StepWork work = step_work(plan);
  const RankProgram rank = write_rank_program(plan, work);
  const Bytes outside = at(result.gpu.breakdown_at_peak, MemoryCategory::cuda_context);
  Played played = play(plan, work, rank, outside, options);
  if (played.rank->stopped) {
    take_played_memory(plan, std::move(played), outside, options.predict, result);
    return result;
  }

  const double old_total = result.step.total.seconds();
  const double old_speed = result.step.tokens_per_second_per_gpu;
  const double scale = scaling_factor(plan.cluster.nodes, plan.coefficients);
  take_time(played.rank->run.step, scale, result.step);
  const double new_total = result.step.total.seconds();
  result.step_interval = around(result.step_interval, old_total, new_total);
  take_device_memory(plan.coefficients, played.rank->run.step, result);
  result.job_seconds = result.job_seconds * (new_total / old_total);
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
    const RankSimulation there = simulate_rank(write_rank_program(changed, work));
    other.tokens_per_second_per_gpu = result.step.tokens_per_second_per_gpu * new_total /
                                      (scale * (there.step.end - there.step.begin));
  }
  return result;
}

}  // namespace zeroplan
