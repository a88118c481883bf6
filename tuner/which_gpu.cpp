#include "tuner/which_gpu.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <tuple>
#include <utility>

#include "base/defect.hpp"
#include "base/parallel_for.hpp"
#include "model/hardware/cluster.hpp"
#include "tuner/fit.hpp"
#include "tuner/fit_batch.hpp"
#include "tuner/fit_ranking.hpp"

namespace zeroplan::tuner {
namespace {

const Origin kWhich = {"command line", "--clusters"};
// Who trains longer than that has no answer: an offload to NVMe makes nearly anything "fit" one
// GPU.
constexpr double kMostHours = 30.0 * 24.0;

Scenario on_cluster(const Scenario& scenario, const AskedCluster& asked) {
  Scenario changed = scenario;
  changed.set(ScenarioKey::cluster, asked.said, kWhich);
  return changed;
}

Phrase shortage_of(const StrategyResult& nearest) {
  if (nearest.result.limits.empty()) return "no strategy fits";
  const Limit& limit = nearest.result.limits.front();
  return phrase("{}: needs {:.1f} GiB and a margin of {:.1f} GiB, has {:.1f} GiB",
                limit.resource == Resource::gpu_memory    ? "GPU memory"
                : limit.resource == Resource::host_memory ? "host memory"
                                                          : "NVMe",
                limit.needed.gib(),
                limit.margin.gib(),
                limit.available.gib());
}

// What the analytic estimate says of a scenario.
struct Estimate {
  bool hopeless = false;                   // not worth a simulation, with no package
  double tokens_per_second_per_gpu = 0.0;  // of the best that fits; of the fastest where none does
  Phrase shortage;                         // of the nearest, where none fits
};

void take_rows(const std::vector<StrategyResult>& rows, Estimate& found) {
  const auto best = best_of(rows);
  if (best) found.tokens_per_second_per_gpu = rows[*best].result.step.tokens_per_second_per_gpu;
  for (const StrategyResult& row : rows) {
    if (is_hopeless(row.result)) continue;
    found.hopeless = false;
    if (best) continue;
    found.tokens_per_second_per_gpu =
        std::max(found.tokens_per_second_per_gpu, row.result.step.tokens_per_second_per_gpu);
  }
}

// With packages where nothing comes near without, as fit() tries them.
Estimate estimate(const Scenario& scenario, const PredictOptions& options) {
  const Question question = ask(scenario);
  const std::vector<StrategyResult> rows = estimated(question, options);
  if (rows.empty()) question.missing->rethrow();
  Estimate found{true, 0.0, shortage_of(nearest_of(rows))};
  take_rows(rows, found);
  if (!found.hopeless) return found;
  for (const Packages& packages : packages_to_try(scenario, rows.front().plan)) {
    Question with = question;
    with.scenario = with_packages(scenario, packages);
    take_rows(estimated(with, options), found);
  }
  return found;
}

struct Candidate {
  AskedCluster said;
  Cluster cluster;
  Estimate estimate;
  std::optional<double> price_per_hour;
  std::optional<ClusterChoice> choice;  // where it was asked and something fits
  bool asked = false;
  Phrase refusal;            // where it refuses the question, or a defect ended it
  std::exception_ptr error;  // of the former

  bool is_open() const { return !asked && !estimate.hopeless && refusal.empty(); }

  double speed() const {
    return estimate.tokens_per_second_per_gpu * static_cast<double>(cluster.total_gpus());
  }
  // Of a token, up to a factor; infinite where no price is known.
  double token_price() const {
    return price_per_hour ? *price_per_hour / speed() : std::numeric_limits<double>::infinity();
  }
};

Bytes memory_in_all(const Cluster& cluster) {
  return cluster.gpu.memory.value * cluster.total_gpus();
}

class Chooser {
 public:
  Chooser(const WhichQuestion& question, const PredictOptions& options)
      : question_(question),
        options_(options),
        tokens_(question.cost.tokens.value_or(1e9)),
        done_(question.on_progress, question.clusters.size() * (question.ask_all ? 2 : 4)) {}

  WhichAnswer run() {
    look();
    if (question_.ask_all) {
      for (std::size_t i = 0; i < candidates_.size(); ++i) {
        ask(i);
        done_.add();
      }
    } else {
      // Who is fast is cheap to rule out first: then the bounds of the others are tight.
      ask_by([](const Candidate& a, const Candidate& b) { return a.speed() > b.speed(); },
             [this](const Candidate& one) { return could_be_fastest(one); });
      ask_by(
          [](const Candidate& a, const Candidate& b) { return a.token_price() < b.token_price(); },
          [this](const Candidate& one) { return could_be_cheapest(one); });
      ask_by([](const Candidate& a, const Candidate& b) { return size_of(a) < size_of(b); },
             [this](const Candidate& one) { return could_be_smallest(one); });
    }
    answer();
    return std::move(answer_);
  }

 private:
  static std::tuple<std::int64_t, Bytes> size_of(const Candidate& one) {
    return {one.cluster.total_gpus(), memory_in_all(one.cluster)};
  }
  static double cost_of(const ClusterChoice& choice) {
    return choice.cost.cost.value_or(std::numeric_limits<double>::infinity());
  }

  void look() {
    const std::vector<AskedCluster>& clusters = question_.clusters;
    for (const AskedCluster& asked : clusters) {
      const Cluster cluster = parse_cluster(asked.said, kWhich.file, kWhich.pointer);
      candidates_.push_back({asked,
                             cluster,
                             {},
                             hourly_price(question_.cost, asked.text, cluster),
                             {},
                             false,
                             {},
                             {}});
    }
    parallel_for(candidates_.size(), machine_threads(), [&](std::size_t i) {
      attempt(candidates_[i], [&] {
        candidates_[i].estimate = estimate(on_cluster(question_.scenario, clusters[i]), options_);
      });
      done_.add();
    });
    // What every cluster refuses is wrong with the question.
    const bool all = std::all_of(candidates_.begin(), candidates_.end(), [](const Candidate& one) {
      return one.error != nullptr;
    });
    if (all) std::rethrow_exception(candidates_.front().error);
  }

  template <typename Look>
  static void attempt(Candidate& candidate, Look&& look) {
    try {
      candidate.refusal = defect_in(look);
    } catch (const InputError& error) {
      const Diagnostic& first = error.diagnostics().front();
      candidate.refusal =
          phrase("{}: expected {}, got {}", first.pointer, first.expected, first.got);
      candidate.error = std::current_exception();
    }
  }

  // --- what a cluster that was not asked could be at best

  bool could_be_fastest(const Candidate& one) const {
    return std::none_of(candidates_.begin(), candidates_.end(), [&](const Candidate& other) {
      return other.choice && other.choice->tokens_per_second >= one.speed() * kSlack;
    });
  }
  bool could_be_cheapest(const Candidate& one) const {
    if (!one.price_per_hour) return false;
    const double least = *one.price_per_hour * tokens_ / (one.speed() * kSlack) / 3600.0;
    return std::none_of(candidates_.begin(), candidates_.end(), [&](const Candidate& other) {
      return other.choice && other.price_per_hour &&
             *other.price_per_hour * tokens_ / other.choice->tokens_per_second / 3600.0 <= least;
    });
  }
  bool could_be_smallest(const Candidate& one) const {
    return std::none_of(candidates_.begin(), candidates_.end(), [&](const Candidate& other) {
      return other.choice && other.choice->cost.hours <= kMostHours &&
             size_of(other) < size_of(one);
    });
  }

  template <typename Better, typename Could>
  void ask_by(Better better, Could could) {
    std::vector<std::size_t> order(candidates_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return better(candidates_[a], candidates_[b]);
    });
    for (const std::size_t i : order) {
      if (candidates_[i].is_open() && could(candidates_[i])) ask(i);
      done_.add();
    }
  }

  void ask(std::size_t index) {
    Candidate& candidate = candidates_[index];
    if (!candidate.is_open()) return;
    candidate.asked = true;
    attempt(candidate, [&] { take(candidate); });
  }

  void take(Candidate& candidate) {
    FitAnswer fitted = strategies_alone(on_cluster(question_.scenario, candidate.said), options_);
    if (!fitted.recommended) {
      candidate.estimate.shortage = shortage_of(nearest_of(fitted.strategies));
      return;
    }
    ClusterChoice choice{candidate.said,
                         candidate.cluster,
                         std::move(fitted.strategies[*fitted.recommended]),
                         fitted.needs,
                         0.0,
                         {}};
    const StepResult& result = choice.best.result;
    choice.tokens_per_second =
        result.step.tokens_per_second_per_gpu * static_cast<double>(candidate.cluster.total_gpus());
    choice.cost = training_cost(question_.cost, candidate.said.text, choice.best.plan, result);
    candidate.choice = std::move(choice);
  }

  template <typename Better>
  std::optional<std::size_t> best(Better better) const {
    std::optional<std::size_t> found;
    for (std::size_t i = 0; i < answer_.choices.size(); ++i) {
      if (!found || better(answer_.choices[i], answer_.choices[*found])) found = i;
    }
    return found;
  }

  // In the order of the question.
  void answer() {
    for (Candidate& candidate : candidates_) {
      if (candidate.choice) {
        answer_.choices.push_back(std::move(*candidate.choice));
      } else if (!candidate.refusal.empty()) {
        answer_.refusals.push_back({candidate.said.text, candidate.refusal});
      } else if (candidate.asked || candidate.estimate.hopeless) {
        answer_.refusals.push_back({candidate.said.text, candidate.estimate.shortage});
      } else {
        answer_.not_asked.push_back(candidate.said.text);
      }
    }
    answer_.smallest = best([&](const ClusterChoice& a, const ClusterChoice& b) {
      const auto too_slow = [](const ClusterChoice& one) { return one.cost.hours > kMostHours; };
      return std::tuple(too_slow(a), a.cluster.total_gpus(), memory_in_all(a.cluster), cost_of(a)) <
             std::tuple(too_slow(b), b.cluster.total_gpus(), memory_in_all(b.cluster), cost_of(b));
    });
    answer_.fastest = best(
        [](const ClusterChoice& a, const ClusterChoice& b) { return a.cost.hours < b.cost.hours; });
    const auto cheapest = best(
        [&](const ClusterChoice& a, const ClusterChoice& b) { return cost_of(a) < cost_of(b); });
    if (cheapest && answer_.choices[*cheapest].cost.cost) answer_.cheapest = cheapest;
  }

  const WhichQuestion& question_;
  const PredictOptions& options_;
  double tokens_;
  PiecesDone done_;  // estimates, then clusters that are asked or need not be
  std::vector<Candidate> candidates_;
  WhichAnswer answer_;
};

}  // namespace

WhichAnswer which_gpu(const WhichQuestion& question, const PredictOptions& options) {
  return Chooser(question, options).run();
}

}  // namespace zeroplan::tuner
