#include "simulator/capacity_trials.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace zeroplan::simulator {
namespace {

// Of a factor by which a GPU can be smaller, between two ways to say that it is enough.
constexpr double kFactorRounding = 1e-9;

double bytes_of(Bytes bytes) { return static_cast<double>(bytes.count()); }

// Does it run on a GPU smaller by `factor`?
bool runs_on_smaller(PlayedRanks& ranks, std::size_t rank, const GpuCapacity& gpu, double factor) {
  const double available = bytes_of(gpu.room) / factor - bytes_of(gpu.outside);
  return available > 0.0 && ranks.runs_alone(rank, Bytes::nearest(available));
}

// A rank that runs out of memory at the capacity threshold reserves more without a limit than the
// GPU has there: else it would have made the same requests, and had room for them. So it does not
// fit.
bool all_run_on_smaller(PlayedRanks& ranks, const CapacityQuestion& question) {
  for (std::size_t i = 0; i < ranks.ranks().size(); ++i) {
    if (ranks.ranks()[i].is_representative) continue;
    const double factor = question.threshold + kFactorRounding;
    if (!runs_on_smaller(ranks, i, question.gpu, factor)) return false;
  }
  return true;
}

// Plays one rank on GPUs of different size, its peers taken to keep up.
class Trials {
 public:
  // `unlimited`: how it ran without a limit.
  Trials(PlayedRanks& ranks,
         std::size_t rank,
         const RankSimulation& unlimited,
         const GpuCapacity& gpu)
      : ranks_(ranks), rank_(rank), unlimited_(unlimited), gpu_(gpu) {}

  // A factor by which the GPU can be smaller for sure: whatever is reserved without a limit runs.
  double surely_runs() const {
    return bytes_of(gpu_.room) / bytes_of(unlimited_.stats.peak_reserved() + gpu_.outside);
  }

  struct Asked {
    double low = 0.0;
    double high = 0.0;
    double precision = 0.0;          // of the answer
    double threshold = 0.0;          // the plan fits from here on
    bool verdict_alone = false;      // it is enough to know on which side of it the answer lies
    bool runs_at_threshold = false;  // is known already
  };
  // Largest factor by which the GPU can be smaller, between `asked.low` and `asked.high`: most
  // plans run at the high end, which is tried first. Which factors run is not monotone to the last
  // byte: on which side of the threshold the answer lies is tried at that one, whoever asks.
  double largest_factor(const Asked& asked) const {
    // Less than what is allocated never runs.
    const double runs = surely_runs();
    const double fails =
        bytes_of(gpu_.room) / bytes_of(unlimited_.stats.peak_allocated() + gpu_.outside);
    if (fails <= asked.low) return fails;
    if (runs >= asked.high || fails <= runs) return runs;
    double low = std::max(runs, asked.low);
    double high = std::min(fails, asked.high);
    const bool runs_at_high = !asked.verdict_alone && high < fails && runs_with(high);
    if (!runs_at_high && low > runs && !runs_with(low)) return low;
    const double threshold = asked.threshold + kFactorRounding;
    const bool open = low < threshold && threshold < high;
    const bool fits = open && (asked.runs_at_threshold || runs_with(threshold));
    if (asked.verdict_alone) return fits ? threshold : low;
    if (runs_at_high) low = high;
    while (high - low > asked.precision) {
      const double middle = 0.5 * (low + high);
      (runs_with(middle) ? low : high) = middle;
    }
    if (!open) return low;
    return fits ? std::max(low, threshold) : std::min(low, asked.threshold - kFactorRounding);
  }

 private:
  bool runs_with(double factor) const { return runs_on_smaller(ranks_, rank_, gpu_, factor); }

  PlayedRanks& ranks_;
  std::size_t rank_;
  const RankSimulation& unlimited_;
  GpuCapacity gpu_;
};

bool all_ran(const std::vector<RankSimulation>& runs) {
  return std::none_of(runs.begin(), runs.end(), [](const RankSimulation& run) {
    return run.out_of_memory.has_value();
  });
}

// The rank that needs the most of its GPU, of those that have memory: the smallest factor where
// one is near the GPU's limit, else the one that holds the most.
struct Tightest {
  std::size_t index = 0;
  double factor = 0.0;
};

Tightest tightest_of(PlayedRanks& ranks,
                     const std::vector<RankSimulation>& unlimited,
                     const CapacityQuestion& question) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < ranks.ranks().size(); ++i) {
    if (!ranks.ranks()[i].is_representative) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return unlimited[a].stats.peak_allocated() > unlimited[b].stats.peak_allocated();
  });
  const double sd = question.sd;
  const double roomy = 1.0 + kFarTail * sd;
  std::optional<Tightest> tightest;
  for (const std::size_t i : order) {
    const Trials trials(ranks, i, unlimited[i], question.gpu);
    if (tightest && trials.surely_runs() >= std::min(tightest->factor, roomy)) continue;
    // Only whether this one has less room than the tightest so far.
    const bool bounded = tightest && !question.verdict_alone;
    const double factor =
        trials.largest_factor({1.0 - kFarTail * sd,
                               bounded ? std::min(tightest->factor, roomy) : roomy,
                               0.25 * sd,
                               question.threshold,
                               question.verdict_alone,
                               question.threshold_first});
    if (!tightest || factor < tightest->factor) tightest = Tightest{i, factor};
  }
  return *tightest;
}

// A rank that asks for more at once than any device has, 1 TiB: how much smaller than that the
// GPU is. Absent: no rank does.
std::optional<double> factor_of_what_no_gpu_has(const std::vector<RankSimulation>& unlimited,
                                                const GpuCapacity& gpu) {
  for (const RankSimulation& run : unlimited) {
    if (!run.out_of_memory) continue;
    const OutOfMemory& asked = run.out_of_memory->numbers;
    return bytes_of(gpu.room) / bytes_of(asked.allocated + asked.tried + gpu.outside);
  }
  return std::nullopt;
}

}  // namespace

SimulatedRank simulate_on(PlayedRanks& played, const CapacityQuestion& question) {
  SimulatedRank simulated;
  if (question.threshold_first && !all_run_on_smaller(played, question)) {
    simulated.factor =
        std::max(kFactorRounding,
                 std::min(1.0 - kFarTail * question.sd, question.threshold - kFactorRounding));
    simulated.stopped = true;
    return simulated;
  }
  std::vector<RankSimulation> runs = played.together(Bytes::infinite(), /*coarse=*/false);
  if (const auto factor = factor_of_what_no_gpu_has(runs, question.gpu)) {
    simulated.factor = *factor;
    simulated.stopped = true;
    return simulated;
  }
  const std::vector<RankPrint>& ranks = played.ranks();
  const Tightest tightest = tightest_of(played, runs, question);
  simulated.factor = tightest.factor;
  const bool unlimited_fits = std::all_of(runs.begin(), runs.end(), [&](const RankSimulation& run) {
    const bool is_representative =
        ranks[static_cast<std::size_t>(&run - runs.data())].is_representative;
    return is_representative ||
           run.stats.peak_reserved() + question.gpu.outside <= question.gpu.room;
  });
  const bool wanted =
      !question.verdict_alone || simulated.factor >= question.threshold - kFactorRounding;
  if (!unlimited_fits && simulated.factor >= 1.0 && wanted) {
    auto limited =
        played.together(question.gpu.room - question.gpu.outside, question.verdict_alone);
    if (all_ran(limited)) {
      runs = std::move(limited);
    } else {
      simulated.factor = 1.0 - kFactorRounding;  // it runs on a smaller GPU by luck alone
    }
  }
  const auto shown =
      std::find_if(ranks.begin(), ranks.end(), [](const RankPrint& rank) { return rank.is_shown; });
  const bool one_is_shown = shown != ranks.end();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (ranks[i].is_representative || (one_is_shown && !ranks[i].is_shown)) continue;
    simulated.most_reserved = std::max(simulated.most_reserved, runs[i].stats.peak_reserved());
  }
  TimeAccount step = step_of(runs);
  const std::size_t index =
      one_is_shown ? static_cast<std::size_t>(shown - ranks.begin()) : tightest.index;
  simulated.rank = ranks[index].rank;
  simulated.run = std::move(runs[index]);
  step.device_memory = simulated.run.step.device_memory;
  step.device_calls = simulated.run.step.device_calls;
  simulated.run.step = step;
  return simulated;
}

}  // namespace zeroplan::simulator
