#include "tuner/reach.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/parallel_for.hpp"
#include "tuner/fit.hpp"
#include "tuner/fit_batch.hpp"
#include "tuner/fit_ranking.hpp"
#include "tuner/headroom.hpp"

namespace zeroplan::tuner {
namespace {

const Origin kReach = {"command line", "--goal"};

Question with_length(Question question, std::int64_t quanta) {
  set_sequence_length(question, quanta * kSequenceQuantum);
  return question;
}

// The lengths of one strategy, in quanta.
class Lengths {
 public:
  Lengths(const Question& question, const Strategy& strategy, const PredictOptions& options)
      : question_(question), strategy_(strategy), options_(options) {
    most_ = std::max<std::int64_t>(1, sequence_limit(*question.prepared.model) / kSequenceQuantum);
    near_ = largest_that_fits(most_, [&](std::int64_t n) { return fits(n, false); });
  }

  const Strategy& strategy() const { return strategy_; }
  // By the analytic estimate.
  std::int64_t near() const { return near_; }

  // Simulated, with all numbers; zero tokens where no length fits.
  SequenceReach settled() const {
    const std::int64_t most =
        largest_played(0, most_, [&](std::int64_t at, bool play) { return fits(at, play); });
    SequenceReach reach;
    // The last one that fits is the longest.
    largest_played(0, most, [&](std::int64_t at, bool play) {
      if (!play) return true;
      const Question here = with_length(question_, at);
      StrategyResult row{.strategy = strategy_,
                         .plan = plan_strategy(here, strategy_, here.batches.sizes.front()),
                         .simulated = true};
      row.result = played(row.plan, options_, question_.memo.get());
      const bool is_longer = row.result.fits;
      if (is_longer) reach = {at * kSequenceQuantum, std::move(row)};
      return is_longer;
    });
    return reach;
  }

 private:
  bool fits(std::int64_t n, bool play) const {
    const Question here = with_length(question_, n);
    return holds(here, strategy_, here.batches.sizes.front(), options_, play);
  }

  const Question& question_;
  Strategy strategy_;
  const PredictOptions& options_;
  std::int64_t most_ = 0;
  std::int64_t near_ = 0;
};

// Of each placement, with less host memory where it fits only so.
std::vector<Lengths> lengths_of(const Question& question, const PredictOptions& options) {
  const std::vector<Strategy> all = strategies(question.scenario);
  std::vector<std::optional<Lengths>> found(all.size());
  parallel_for(all.size(), machine_threads(), [&](std::size_t i) {
    question.missing->attempt_or_refuse(describe(all[i]), [&] {
      found[i].emplace(question, all[i], options);
      if (found[i]->near() > 0) return;
      for (const Strategy& leaner : with_less_host_memory(all[i], question.base.get())) {
        found[i].emplace(question, leaner, options);
        if (found[i]->near() > 0) return;
      }
    });
  });
  std::vector<Lengths> lengths;
  for (const std::optional<Lengths>& one : found) {
    if (one) lengths.push_back(*one);
  }
  if (lengths.empty()) question.missing->rethrow();
  return lengths;
}

// Of those that come near the longest by the analytic estimate each, simulated.
std::vector<SequenceReach> settled(const Question& question, const std::vector<Lengths>& lengths) {
  constexpr double kNear = 0.8;
  std::int64_t most = 0;
  for (const Lengths& one : lengths) most = std::max(most, one.near());
  std::vector<SequenceReach> reaches(lengths.size());
  parallel_for(lengths.size(), machine_threads(), [&](std::size_t i) {
    const bool near = static_cast<double>(lengths[i].near()) >= kNear * static_cast<double>(most);
    if (most == 0 || !near) return;
    question.missing->attempt(describe(lengths[i].strategy()),
                              [&] { reaches[i] = lengths[i].settled(); });
  });
  std::erase_if(reaches, [](const SequenceReach& one) { return one.tokens == 0; });
  return reaches;
}

std::optional<LongestSequence> longest(const Question& question, const PredictOptions& options) {
  constexpr double kAsLong = 0.03;
  std::vector<SequenceReach> reaches = settled(question, lengths_of(question, options));
  if (reaches.empty()) return std::nullopt;
  const auto longer = [](const SequenceReach& a, const SequenceReach& b) {
    return a.tokens < b.tokens;
  };
  const SequenceReach farthest = *std::max_element(reaches.begin(), reaches.end(), longer);
  const double enough = static_cast<double>(farthest.tokens) * (1.0 - kAsLong);
  std::erase_if(reaches,
                [&](const SequenceReach& one) { return static_cast<double>(one.tokens) < enough; });
  std::vector<StrategyResult> rows;
  for (const SequenceReach& one : reaches) rows.push_back(one.row);
  LongestSequence found{std::move(reaches[*best_of(rows)]), std::nullopt};
  if (found.best.tokens < farthest.tokens) found.longer = farthest;
  return found;
}

// The longest sequences that as many GPUs of a node share as the model allows; nothing where none
// can.
void add_shared(LongestSequences& found,
                const Scenario& base,
                std::int64_t gpus_per_node,
                const PredictOptions& options) {
  if (base.find(ScenarioKey::sequence_parallel) != nullptr) return;
  std::int64_t longest_alone = 0;
  for (const auto* one : {&found.plain, &found.with_packages}) {
    if (*one) longest_alone = std::max(longest_alone, (*one)->best.tokens);
  }
  for (std::int64_t ranks = gpus_per_node; ranks > 1; ranks /= 2) {
    Scenario shared = found.packages.any() ? with_packages(base, found.packages) : base;
    shared.set(ScenarioKey::sequence_parallel, Json(ranks), kReach);
    try {
      std::optional<LongestSequence> reach = longest(ask(shared), options);
      if (!reach || reach->best.tokens <= longest_alone) return;
      found.ranks = ranks;
      found.shared = std::move(reach);
      return;
    } catch (const InputError&) {  // heads that so many do not divide, or a class that cannot
      continue;
    }
  }
}

}  // namespace

LongestSequences longest_sequence(const Scenario& scenario, const PredictOptions& options) {
  Scenario base = scenario;
  if (base.find(ScenarioKey::activation_checkpointing) == nullptr) {
    base.set(ScenarioKey::activation_checkpointing, Json("full"), kReach);
  }
  base.set(ScenarioKey::sequence_length, Json(kSequenceQuantum), kReach);
  const Question question = ask(base);
  LongestSequences found;
  found.plain = longest(question, options);
  const Plan any =
      plan_strategy(question, strategies(base).front(), question.batches.sizes.front());
  const std::vector<Packages> choices = packages_to_try(base, any);
  Question asked = question;
  if (!choices.empty()) {
    Question with = question;
    with.scenario = with_packages(std::move(with.scenario), choices.back());
    found.with_packages = longest(with, options);
    const std::int64_t plain = found.plain ? found.plain->best.tokens : 0;
    if (found.with_packages && found.with_packages->best.tokens > plain) {
      found.packages = choices.back();
      if (!found.plain) asked = with;
    } else {
      found.with_packages.reset();
    }
  }
  const std::optional<LongestSequence>& answer = found.answer();
  if (answer && answer->best.row.result.host_condition) {
    found.has_condition = true;
    take_usual_host(asked);
    found.usual_host = longest(asked, options);
  }
  add_shared(found, base, question.prepared.cluster->gpus_per_node(), options);
  return found;
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
    changed.set(ScenarioKey::model, Json(size(n)), kReach);
    Question question = ask(changed);
    // A node as large as the model asks for is no answer: one has what is said, or the usual.
    take_usual_host(question);
    return question;
  };
  const std::int64_t n = largest_played(0, kMost, [&](std::int64_t at, bool play) {
    const Question question = with(at);
    if (play) return found_roughly(question, options).has_value();
    return best_of(estimated(question, options)).has_value();
  });
  if (n == 0) return std::nullopt;
  auto best = found_roughly(with(n), options);
  if (!best) return std::nullopt;
  LargestModel largest{size(n), std::move(*best), std::nullopt};
  std::vector<StrategyResult> next = estimated(with(n + 1), options);
  std::erase_if(next, [&](const StrategyResult& row) {
    return row.result.limits.empty() || !same_placement(row.strategy, largest.best.strategy);
  });
  if (!next.empty()) largest.larger = nearest_of(next);
  return largest;
}

}  // namespace zeroplan::tuner
