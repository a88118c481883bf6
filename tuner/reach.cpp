#include "tuner/reach.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "base/parallel_for.hpp"
#include "tuner/fit.hpp"
#include "tuner/fit_batch.hpp"
#include "tuner/fit_ranking.hpp"
#include "tuner/headroom.hpp"

namespace zeroplan::tuner {
namespace {

const Origin kReach = {"command line", "--goal"};
const Origin kSolve = {"command line", "--solve"};

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
  const std::vector<Strategy> all = strategies(question);
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

// The values of what is sought, by their numbers from 1 on.
class Values {
 public:
  Values(const Scenario& scenario, Sought sought) : scenario_(scenario), sought_(sought) {
    if (const ExplicitValue* said = scenario_.find(ScenarioKey::global_batch_size);
        said != nullptr && sought == Sought::micro_batch) {
      throw InputError({kSolve.file,
                        "--solve",
                        "no --global-batch beside mbs",
                        described(said->value),
                        "a micro-batch that divides it is what fit chooses"});
    }
    if (sought == Sought::gpus) per_node_ = ask(scenario_).prepared.cluster->gpus_per_node();
    const auto lacks = [&](ScenarioKey key, const char* flag, const char* wanted) {
      const ExplicitValue* said = scenario_.find(key);
      throw InputError({kSolve.file,
                        flag,
                        wanted,
                        said != nullptr ? described(said->value) : Phrase("none"),
                        ""});
    };
    if (sought == Sought::rank) {
      settings_ = settings_of(ScenarioKey::method);
      if (!settings_ || settings_->name == "full") {
        lacks(ScenarioKey::method, "--method", "lora or qlora, whose rank is sought");
      }
    }
    if (sought == Sought::completions) {
      settings_ = settings_of(ScenarioKey::trainer);
      if (!settings_ || settings_->name != "grpo") {
        lacks(ScenarioKey::trainer, "--trainer", "grpo, whose completions are sought");
      }
    }
  }

  std::int64_t most() const {
    constexpr std::int64_t kModels = 234;  // 1e8 x 1.04^234 is just below 10^12
    constexpr std::int64_t kRanks = 512, kPowers = 10, kNodes = 1024;
    switch (sought_) {
      case Sought::model:
        return kModels;
      case Sought::micro_batch:
        return kMostMicroBatch;
      case Sought::rank:
        return kRanks;
      case Sought::completions:
        return kPowers;
      case Sought::gpus:
        break;
    }
    return parts_of_a_node() + kNodes;
  }

  std::string text(std::int64_t n) const {
    if (sought_ != Sought::model) return std::to_string(number(n));
    constexpr double kLeast = 1e8, kStep = 1.04;
    const double parameters = kLeast * std::pow(kStep, static_cast<double>(n));
    return parameters < 1e9 ? fmt::format("{:.0f}M", parameters / 1e6)
                            : fmt::format("{:.3g}B", parameters / 1e9);
  }

  // Nothing where that value is refused, as completions are that the batch does not
  // divide into; the first is refused as fit() refuses it.
  std::optional<Question> with(std::int64_t n) const {
    try {
      return question(n);
    } catch (const InputError&) {
      if (n == 1) throw;
      return std::nullopt;
    }
  }

 private:
  // A method or trainer with what is said of it.
  struct Settings {
    std::string name;
    Json said;
  };

  std::optional<Settings> settings_of(ScenarioKey key) const {
    const ExplicitValue* value = scenario_.find(key);
    if (value == nullptr) return std::nullopt;
    const Json& said = value->value;
    if (said.is_string()) return Settings{said.as_string(), Json::object({})};
    if (!said.is_object() || said.members().size() != 1) return std::nullopt;
    return Settings{said.members().front().first, said.members().front().second};
  }

  std::int64_t parts_of_a_node() const {
    return std::bit_width(static_cast<std::uint64_t>(per_node_ - 1));
  }

  std::int64_t number(std::int64_t n) const {
    constexpr std::int64_t kRanks = 8;
    if (sought_ == Sought::rank) return kRanks * n;
    if (sought_ == Sought::completions) return std::int64_t{1} << n;
    if (sought_ != Sought::gpus) return n;
    const std::int64_t parts = parts_of_a_node();
    return n <= parts ? std::int64_t{1} << (n - 1) : per_node_ * (n - parts);
  }

  Question question(std::int64_t n) const {
    Scenario changed = scenario_;
    const auto set_in = [&](ScenarioKey key, const char* name) {
      Json said = settings_->said;
      said[name] = Json(number(n));
      changed.set(key, Json::object({{settings_->name, said}}), kSolve);
    };
    if (sought_ == Sought::model) changed.set(ScenarioKey::model, Json(text(n)), kSolve);
    if (sought_ == Sought::micro_batch) {
      changed.set(ScenarioKey::micro_batch_size, Json(n), kSolve);
    }
    if (sought_ == Sought::rank) set_in(ScenarioKey::method, "rank");
    if (sought_ == Sought::completions) set_in(ScenarioKey::trainer, "completions");
    Question question = ask(changed);
    if (sought_ == Sought::gpus) {
      const std::int64_t gpus = number(n);
      set_gpus(question, std::max<std::int64_t>(1, gpus / per_node_), std::min(gpus, per_node_));
    }
    // A node as large as the answer asks for is no answer: one has what is said, or the usual.
    take_usual_host(question);
    return question;
  }

  Scenario scenario_;
  Sought sought_;
  std::int64_t per_node_ = 1;
  std::optional<Settings> settings_;
};

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

std::optional<Reach> reach(const Scenario& scenario, Sought sought, const PredictOptions& options) {
  const Values values(scenario, sought);
  std::map<std::int64_t, StrategyResult> found;  // by what was simulated
  const auto fits = [&](std::int64_t n, bool play) {
    const std::optional<Question> question = values.with(n);
    if (!question) return false;
    if (!play) return best_of(estimated(*question, options)).has_value();
    std::optional<StrategyResult> best = found_roughly(*question, options);
    if (best) found.insert_or_assign(n, std::move(*best));
    return found.contains(n);
  };
  const bool fewest = sought == Sought::gpus;
  std::int64_t n = largest_played(
      0, values.most(), [&](std::int64_t at, bool play) { return fits(at, play) != fewest; });
  if (fewest) ++n;
  // What the estimate alone has ruled in or out is simulated, too.
  const bool is_one = n >= 1 && n <= values.most();
  if (!is_one || (!found.contains(n) && !fits(n, true))) return std::nullopt;
  Reach reach{
      values.text(n), !fewest && n == values.most(), std::move(found.at(n)), "", std::nullopt};
  const std::int64_t next = fewest ? n - 1 : n + 1;
  const std::optional<Question> beyond =
      next < 1 || next > values.most() ? std::nullopt : values.with(next);
  if (!beyond) return reach;
  std::vector<StrategyResult> rows = estimated(*beyond, options);
  std::erase_if(rows, [&](const StrategyResult& row) {
    const Strategy &own = row.strategy, &best_one = reach.best.strategy;
    return row.result.limits.empty() || !same_placement(own, best_one) ||
           own.checkpointing != best_one.checkpointing;
  });
  if (rows.empty()) return reach;
  reach.beyond = values.text(next);
  reach.lacking = nearest_of(rows);
  return reach;
}

}  // namespace zeroplan::tuner
