#include "tuner/which_gpu.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <tuple>

#include <fmt/format.h>

#include "model/defect.hpp"
#include "model/hardware/cluster.hpp"
#include "model/predict/predict.hpp"
#include "tuner/fit.hpp"
#include "tuner/headroom.hpp"

namespace zeroplan {
namespace {

const Origin kWhich = {"command line", "--clusters"};
constexpr std::size_t kAskedPerObjective = 3;
// Who trains longer than that has no answer: an offload to NVMe makes nearly anything "fit" one
// GPU.
constexpr double kMostHours = 30.0 * 24.0;

Scenario on_cluster(const Scenario& scenario, const AskedCluster& asked) {
  Scenario changed = scenario;
  changed.set(ScenarioKey::cluster, asked.said, kWhich);
  return changed;
}

// What the analytic estimate says of all strategies of a scenario.
struct Estimate {
  bool fits = false;
  double tokens_per_second_per_gpu = 0.0;  // of the fastest that fits
  Phrase shortage;                         // of the nearest, where none fits
};

Estimate estimate(const Scenario& scenario, PredictOptions options) {
  options.likeliest_alone = true;
  Prepared prepared = prepare(scenario);
  const ExplicitValue* said = scenario.find(ScenarioKey::ds_config);
  std::optional<DsConfig> base;
  if (said != nullptr) base = read_ds_config_of(*said);
  Estimate found;
  double nearest = 0.0;
  for (const Strategy& strategy : strategies(scenario)) {
    Scenario changed = scenario;
    changed.set(ScenarioKey::activation_checkpointing,
                Json(name(kActivationCheckpointingNames, strategy.checkpointing)),
                kWhich);
    prepared.ds_config = std::make_shared<const DsConfig>(
        strategy_config(strategy, base ? &*base : nullptr, *prepared.model));
    const StepResult result = predict(resolve(changed, prepared), options);
    if (result.fits) {
      found.fits = true;
      found.tokens_per_second_per_gpu =
          std::max(found.tokens_per_second_per_gpu, result.step.tokens_per_second_per_gpu);
    }
    if (result.limits.empty()) continue;
    const Limit& limit = result.limits.front();
    const double share = limit.available / limit.needed;
    if (share <= nearest) continue;
    nearest = share;
    found.shortage = phrase("{}: needs {:.1f} GiB, has {:.1f} GiB",
                            limit.resource == Resource::gpu_memory    ? "GPU memory"
                            : limit.resource == Resource::host_memory ? "host memory"
                                                                      : "NVMe",
                            limit.needed.gib(),
                            limit.available.gib());
  }
  return found;
}

struct Candidate {
  AskedCluster asked;
  Cluster cluster;
  Estimate estimate;
  std::optional<double> price_per_hour;

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

// Indices of the few candidates that any objective may choose.
std::vector<std::size_t> worth_asking(const std::vector<Candidate>& candidates, double tokens) {
  const auto too_slow = [&](const Candidate& one) {
    return tokens / one.speed() / 3600.0 > kMostHours;
  };
  using Better = std::function<bool(const Candidate&, const Candidate&)>;
  const Better objectives[] = {
      [&](const Candidate& a, const Candidate& b) {
        return std::tuple(
                   too_slow(a), a.cluster.total_gpus(), memory_in_all(a.cluster), a.token_price()) <
               std::tuple(
                   too_slow(b), b.cluster.total_gpus(), memory_in_all(b.cluster), b.token_price());
      },
      [](const Candidate& a, const Candidate& b) { return a.token_price() < b.token_price(); },
      [](const Candidate& a, const Candidate& b) { return a.speed() > b.speed(); }};
  std::vector<std::size_t> all(candidates.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  std::vector<std::size_t> asked;
  for (const Better& better : objectives) {
    std::vector<std::size_t> ranked = all;
    std::stable_sort(ranked.begin(), ranked.end(), [&](std::size_t a, std::size_t b) {
      return better(candidates[a], candidates[b]);
    });
    ranked.resize(std::min(ranked.size(), kAskedPerObjective));
    asked.insert(asked.end(), ranked.begin(), ranked.end());
  }
  std::sort(asked.begin(), asked.end());
  asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
  return asked;
}

class Chooser {
 public:
  Chooser(const WhichQuestion& question, const PredictOptions& options)
      : question_(question), options_(options) {}

  WhichAnswer run() {
    std::vector<Candidate> candidates = those_that_fit();
    std::vector<std::size_t> asked = worth_asking(candidates, question_.cost.tokens.value_or(1e9));
    if (question_.ask_all) {
      asked.resize(candidates.size());
      for (std::size_t i = 0; i < asked.size(); ++i) asked[i] = i;
    }
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (std::find(asked.begin(), asked.end(), i) != asked.end()) {
        ask(candidates[i]);
      } else {
        answer_.not_asked.push_back(candidates[i].asked.text);
      }
    }
    choose();
    return std::move(answer_);
  }

 private:
  std::vector<Candidate> those_that_fit() {
    std::vector<Candidate> candidates;
    for (const AskedCluster& asked : question_.clusters) {
      const Cluster cluster = parse_cluster(asked.said, kWhich.file, kWhich.pointer);
      Candidate candidate{asked, cluster, {}, hourly_price(question_.cost, asked.text, cluster)};
      const bool looked = attempt(asked, [&] {
        candidate.estimate = estimate(on_cluster(question_.scenario, asked), options_);
      });
      if (!looked) continue;
      if (candidate.estimate.fits) {
        candidates.push_back(std::move(candidate));
      } else {
        answer_.refusals.push_back({asked.text, candidate.estimate.shortage});
      }
    }
    // What every cluster refuses is wrong with the question.
    const bool all = answer_.refusals.size() == question_.clusters.size();
    if (all && refused_ == answer_.refusals.size()) std::rethrow_exception(refusal_);
    return candidates;
  }

  // False where the cluster refuses the question, or a defect ended it: it is among the refusals.
  template <typename Look>
  bool attempt(const AskedCluster& asked, Look&& look) {
    Phrase why;
    try {
      why = defect_in(look);
    } catch (const InputError& error) {
      const Diagnostic& first = error.diagnostics().front();
      why = phrase("{}: expected {}, got {}", first.pointer, first.expected, first.got);
      ++refused_;
      refusal_ = std::current_exception();
    }
    if (!why.empty()) answer_.refusals.push_back({asked.text, why});
    return why.empty();
  }

  void ask(const Candidate& candidate) {
    attempt(candidate.asked, [&] { take(candidate); });
  }

  void take(const Candidate& candidate) {
    FitAnswer fitted = fit(on_cluster(question_.scenario, candidate.asked), options_);
    if (!fitted.recommended) {
      const std::string why = candidate.estimate.shortage;
      answer_.refusals.push_back({candidate.asked.text, why.empty() ? "no strategy fits" : why});
      return;
    }
    ClusterChoice choice{candidate.asked,
                         candidate.cluster,
                         std::move(fitted.strategies[*fitted.recommended]),
                         0.0,
                         {}};
    const StepResult& result = choice.best.result;
    choice.tokens_per_second =
        result.step.tokens_per_second_per_gpu * static_cast<double>(candidate.cluster.total_gpus());
    choice.cost = training_cost(question_.cost, candidate.asked.text, choice.best.plan, result);
    answer_.choices.push_back(std::move(choice));
  }

  template <typename Better>
  std::optional<std::size_t> best(Better better) const {
    std::optional<std::size_t> found;
    for (std::size_t i = 0; i < answer_.choices.size(); ++i) {
      if (!found || better(answer_.choices[i], answer_.choices[*found])) found = i;
    }
    return found;
  }

  void choose() {
    const auto cost = [](const ClusterChoice& choice) {
      return choice.cost.cost.value_or(std::numeric_limits<double>::infinity());
    };
    answer_.smallest = best([&](const ClusterChoice& a, const ClusterChoice& b) {
      const auto too_slow = [](const ClusterChoice& one) { return one.cost.hours > kMostHours; };
      return std::tuple(too_slow(a), a.cluster.total_gpus(), memory_in_all(a.cluster), cost(a)) <
             std::tuple(too_slow(b), b.cluster.total_gpus(), memory_in_all(b.cluster), cost(b));
    });
    answer_.fastest = best(
        [](const ClusterChoice& a, const ClusterChoice& b) { return a.cost.hours < b.cost.hours; });
    const auto cheapest =
        best([&](const ClusterChoice& a, const ClusterChoice& b) { return cost(a) < cost(b); });
    if (cheapest && answer_.choices[*cheapest].cost.cost) answer_.cheapest = cheapest;
  }

  const WhichQuestion& question_;
  const PredictOptions& options_;
  WhichAnswer answer_;
  std::size_t refused_ = 0;  // clusters that refuse the question
  std::exception_ptr refusal_;
};

// The largest n up to `most` for which fit() has an answer: the analytic estimate finds, fit()
// decides, in steps of a part of n downwards where it says no.
std::optional<std::pair<std::int64_t, FitAnswer>> largest_answered(
    std::int64_t most,
    const std::function<Scenario(std::int64_t)>& scenario,
    const PredictOptions& options) {
  constexpr std::int64_t kPart = 24;
  std::int64_t n = largest_that_fits(
      most, [&](std::int64_t value) { return estimate(scenario(value), options).fits; });
  while (n >= 1) {
    FitAnswer answer = fit(scenario(n), options);
    if (answer.recommended) return std::pair(n, std::move(answer));
    n -= std::max<std::int64_t>(1, n / kPart);
  }
  return std::nullopt;
}

}  // namespace

WhichAnswer which_gpu(const WhichQuestion& question, const PredictOptions& options) {
  return Chooser(question, options).run();
}

std::optional<LongestSequence> longest_sequence(const Scenario& scenario,
                                                const PredictOptions& options) {
  constexpr std::int64_t kQuantum = 1024;
  Scenario base = scenario;
  if (base.find(ScenarioKey::activation_checkpointing) == nullptr) {
    base.set(ScenarioKey::activation_checkpointing, Json("full"), kWhich);
  }
  const std::int64_t most = sequence_limit(*prepare(base).model) / kQuantum;
  const auto with = [&](std::int64_t n) {
    Scenario changed = base;
    changed.set(ScenarioKey::sequence_length, Json(n * kQuantum), kWhich);
    return changed;
  };
  auto found = largest_answered(most, with, options);
  if (!found) return std::nullopt;
  return LongestSequence{found->first * kQuantum, std::move(found->second)};
}

std::optional<LargestModel> largest_model(const Scenario& scenario, const PredictOptions& options) {
  constexpr double kLeast = 1e8, kStep = 1.04;
  constexpr std::int64_t kMost = 234;  // 1e8 x 1.04^234 is just below 10^12
  const auto size = [&](std::int64_t n) {
    const double parameters = kLeast * std::pow(kStep, static_cast<double>(n));
    return parameters < 1e9 ? fmt::format("{:.0f}M", parameters / 1e6)
                            : fmt::format("{:.3g}B", parameters / 1e9);
  };
  const auto with = [&](std::int64_t n) {
    Scenario changed = scenario;
    changed.set(ScenarioKey::model, Json(size(n)), kWhich);
    return changed;
  };
  auto found = largest_answered(kMost, with, options);
  if (!found) return std::nullopt;
  return LargestModel{size(found->first), std::move(found->second)};
}

}  // namespace zeroplan
