#include "tuner/fit.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "base/defect.hpp"
#include "base/diagnostic.hpp"
#include "base/parallel_for.hpp"
#include "simulator/simulate.hpp"
#include "tuner/fit_batch.hpp"
#include "tuner/fit_question.hpp"
#include "tuner/fit_ranking.hpp"
#include "tuner/headroom.hpp"
#include "tuner/remedies.hpp"

namespace zeroplan::tuner {
namespace {

// Strategies that differ in checkpointing alone stand beside each other.
std::vector<std::span<const Strategy>> by_placement(const std::vector<Strategy>& all) {
  std::vector<std::span<const Strategy>> groups;
  for (std::size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    while (end < all.size() && same_placement(all[begin], all[end])) ++end;
    groups.emplace_back(all.data() + begin, end - begin);
  }
  return groups;
}

bool lacks_host_memory_alone(const StrategyResult& row) {
  const std::vector<Limit>& limits = row.result.limits;
  return !row.result.fits && limits.size() == 1 &&
         limits.front().resource == Resource::host_memory &&
         limits.front().pool == Limit::Pool::none;
}

// Strategies of one placement that fit but for host memory, with less of it where that is enough.
void spare_host_memory(const Question& question,
                       const PredictOptions& options,
                       Depth depth,
                       std::vector<StrategyResult>& rows) {
  const auto fits = [](const StrategyResult& row) { return row.result.fits; };
  if (std::any_of(rows.begin(), rows.end(), fits)) return;
  for (StrategyResult& row : rows) {
    if (!lacks_host_memory_alone(row)) continue;
    for (const Strategy& leaner : with_less_host_memory(row.strategy, question.base.get())) {
      const std::span<const Strategy> one(&leaner, 1);
      auto spared = settle(question, one, options, Depth::closed_form);
      if (spared.empty() || !fits(spared.front())) continue;
      if (depth == Depth::simulated) spared = settle(question, one, options);
      if (spared.empty() || !fits(spared.front())) continue;
      row = std::move(spared.front());
      return;
    }
  }
}

// Rows that were simulated as simulate() has them: what a table says of a plan is what the plan is
// told alone. One that a defect ends goes.
void play_simulated(const Question& question,
                    const PredictOptions& options,
                    std::vector<StrategyResult>& rows) {
  std::erase_if(rows, [&](StrategyResult& row) {
    return row.simulated && !question.missing->attempt(describe(row.strategy), [&] {
      play_whole(row, options, question.memo.get());
    });
  });
}

// The results do not depend on the number of threads. Strategies with equal programs are simulated
// once: stages 1 and 2 often have them. Throws what ended the first where none is left.
std::vector<StrategyResult> play_all(const Question& question, const PredictOptions& options) {
  const std::vector<Strategy> all = strategies(question);
  const std::vector<std::span<const Strategy>> groups = by_placement(all);
  std::vector<std::vector<StrategyResult>> results(groups.size());
  parallel_for(groups.size(), machine_threads(), [&](std::size_t i) {
    question.missing->attempt_or_refuse(describe(groups[i].front()), [&] {
      results[i] = settle(question, groups[i], options);
      spare_host_memory(question, options, Depth::simulated, results[i]);
      play_simulated(question, options, results[i]);
    });
  });
  std::vector<StrategyResult> rows;
  for (std::vector<StrategyResult>& group : results) {
    std::move(group.begin(), group.end(), std::back_inserter(rows));
  }
  if (rows.empty()) question.missing->rethrow();
  return rows;
}

// Where none fits, the one that comes nearest with all its numbers, as simulate() has them: what it
// needs is part of the answer. One that a defect ends goes.
void play_nearest(const Question& question,
                  std::vector<StrategyResult>& rows,
                  const PredictOptions& options) {
  std::vector<char> done(rows.size(), 0);
  while (!rows.empty()) {
    const auto nearest = &nearest_of(rows) - rows.data();
    if (done[static_cast<std::size_t>(nearest)] != 0) return;
    StrategyResult& row = rows[static_cast<std::size_t>(nearest)];
    const bool is_played = question.missing->attempt(describe(row.strategy), [&] {
      play_whole(row, options, question.memo.get());
      row.simulated = true;
    });
    if (is_played) {
      done[static_cast<std::size_t>(nearest)] = 1;
      continue;
    }
    rows.erase(rows.begin() + nearest);
    done.erase(done.begin() + nearest);
  }
}

// The best of the rows, with its ranks side by side where they differ: a row of which one stood in
// for all may turn out not to fit, or not to be the best. One that a defect ends goes.
std::optional<std::size_t> recommended_of(const Question& question,
                                          std::vector<StrategyResult>& rows,
                                          const PredictOptions& options) {
  std::vector<char> done(rows.size(), 0);
  while (true) {
    const auto best = best_of(rows);
    if (!best || done[*best] != 0) return best;
    StrategyResult& row = rows[*best];
    const bool is_played = question.missing->attempt(describe(row.strategy), [&] {
      play_whole(row, options, question.memo.get());  // and with all its numbers
    });
    if (is_played) {
      done[*best] = 1;
      continue;
    }
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(*best));
    done.erase(done.begin() + static_cast<std::ptrdiff_t>(*best));
  }
}

Headroom headroom_of(const Question& question,
                     const StrategyResult& chosen,
                     const PredictOptions& options) {
  const Workload& workload = chosen.plan.workload;
  const auto fits = [&](const Question& changed, std::int64_t micro_batch, bool play) {
    return holds(changed,
                 chosen.strategy,
                 {micro_batch, workload.gradient_accumulation_steps},
                 options,
                 play);
  };
  const std::int64_t quanta =
      std::max<std::int64_t>(1, sequence_limit(*question.prepared.model) / kSequenceQuantum);
  Headroom headroom;
  const auto find_longest = [&] {
    const std::int64_t longest = largest_played(
        workload.sequence_length / kSequenceQuantum, quanta, [&](std::int64_t n, bool play) {
          Question changed = question;
          set(changed, ScenarioKey::sequence_length, Json(n * kSequenceQuantum));
          return fits(changed, workload.micro_batch_size, play);
        });
    headroom.longest_sequence = std::max(longest * kSequenceQuantum, workload.sequence_length);
  };
  const auto find_largest = [&] {
    headroom.largest_micro_batch = largest_played(
        workload.micro_batch_size,
        most_micro_batch(*chosen.plan.model),
        [&](std::int64_t micro_batch, bool play) { return fits(question, micro_batch, play); });
  };
  parallel_for(2, 2, [&](std::size_t which) { which == 0 ? find_longest() : find_largest(); });
  return headroom;
}

// A question whose strategy is free.
class QuestionSubject : public RemedySubject {
 public:
  QuestionSubject(const Question& question,
                  const StrategyResult& nearest,
                  const PredictOptions& options)
      : question_(question), nearest_(nearest), options_(options) {}

  const Scenario& scenario() const override { return question_.scenario; }
  const Plan& plan() const override { return nearest_.plan; }
  const StepResult& result() const override { return nearest_.result; }
  bool chooses_strategy() const override { return true; }

  std::optional<StrategyResult> roughly(const Variation& change) const override {
    const auto question = with(change);
    if (!question) return std::nullopt;
    return roughly(*question);
  }

  std::optional<StrategyResult> best(const Variation& change) const override {
    const auto question = with(change);
    if (!question) return std::nullopt;
    std::optional<StrategyResult> rough = roughly(*question);
    if (!rough || is_hopeless(rough->result)) return rough;
    if (rough->result.fits) {
      if (auto found = found_roughly(*question, options_)) return found;
    }
    play_if_it_runs(*rough, options_, *question->memo);
    return rough;
  }

  bool fits(const Variation& change, const StrategyResult& like) const override {
    const auto question = with(change);
    if (!question) return false;
    return holds(*question, like.strategy, question->batches.sizes.front(), options_, true);
  }

 private:
  std::optional<Question> with(const Variation& change) const {
    try {
      return varied(question_, change);
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

  // With the smallest micro-batch: the best that fits, or the nearest.
  std::optional<StrategyResult> roughly(const Question& question) const {
    std::vector<StrategyResult> rows;
    for (const Strategy& strategy : strategies(question)) {
      question.missing->attempt(describe(strategy), [&] {
        try {
          rows.push_back(most_frugal(question, strategy, options_));
        } catch (const InputError&) {  // what the changed question refuses is no way out
        }
      });
    }
    if (rows.empty()) return std::nullopt;
    const auto best = best_of(rows);
    return best ? rows[*best] : nearest_of(rows);
  }

  const Question& question_;
  const StrategyResult& nearest_;
  const PredictOptions& options_;
};

// The best strategy on a single node, where that is enough.
std::optional<StrategyResult> on_one_node(const Question& question, const PredictOptions& options) {
  if (question.prepared.cluster->nodes == 1) return std::nullopt;
  Question single = question;
  try {
    set_nodes(single, 1);
  } catch (const InputError&) {  // degrees that need more GPUs
    return std::nullopt;
  }
  auto found = found_roughly(single, options);
  // One that asks for more host memory than the usual is not called enough.
  if (found && found->result.host_condition) return std::nullopt;
  return found;
}

Question with_packages(Question question, const Packages& packages) {
  question.scenario = with_packages(std::move(question.scenario), packages);
  if (packages.flash_attention) question.prepared = prepare(question.scenario);
  return question;
}

// The rows of another question in the place of the answer's, where one of them fits: it is the
// question then.
bool take_if_it_fits(Question other,
                     const PredictOptions& options,
                     Question& question,
                     FitAnswer& answer) {
  if (!found_roughly(other, options)) return false;
  std::vector<StrategyResult> rows = play_all(other, options);
  const auto best = recommended_of(other, rows, options);
  if (!best) return false;
  answer.strategies = std::move(rows);
  answer.recommended = best;
  question = std::move(other);
  return true;
}

// Where nothing fits, the first set of packages (the fewest come first) with which something does.
// The rest of the answer is then for the question with these packages.
void try_packages(Question& question, const PredictOptions& options, FitAnswer& answer) {
  StrategyResult nearest = nearest_of(answer.strategies);
  for (const Packages& packages :
       packages_to_try(question.scenario, answer.strategies.front().plan)) {
    if (!take_if_it_fits(with_packages(question, packages), options, question, answer)) continue;
    answer.nearest_without = std::move(nearest);
    answer.needs = packages;
    return;
  }
}

// Where nobody said the batch and nothing fits: steps of one micro-batch, which sum no gradients.
void try_single_steps(Question& question, const PredictOptions& options, FitAnswer& answer) {
  const Plan& plan = nearest_of(answer.strategies).plan;
  if (question.batches.assumption.empty() || plan.workload.gradient_accumulation_steps == 1) return;
  Question single = question;
  single.batches = without_accumulation(question.batches, plan.degrees.data);
  take_if_it_fits(std::move(single), options, question, answer);
}

// The strategies and the one to use, with packages where nothing fits without; `question` is then
// that with these packages.
FitAnswer try_strategies(Question& question, const PredictOptions& options) {
  FitAnswer answer;
  answer.strategies = play_all(question, options);
  answer.recommended = recommended_of(question, answer.strategies, options);
  if (!answer.recommended) {
    play_nearest(question, answer.strategies, options);
    answer.recommended = recommended_of(question, answer.strategies, options);
  }
  MissingRows& missing = *question.missing;
  if (answer.strategies.empty()) missing.rethrow();
  if (!answer.recommended) {
    missing.attempt("without accumulation", [&] { try_single_steps(question, options, answer); });
  }
  if (!answer.recommended) {
    missing.attempt("with other packages", [&] { try_packages(question, options, answer); });
  }
  return answer;
}

// The same question with the usual host memory as what a node has.
UsualHost on_usual_host(Question question, const PredictOptions& options) {
  take_usual_host(question);
  question.missing = std::make_shared<MissingRows>();  // those of the question are named once
  FitAnswer answer = try_strategies(question, options);
  UsualHost usual{std::nullopt, answer.needs};
  if (answer.recommended) {
    usual.best = std::move(answer.strategies[*answer.recommended]);
    return usual;
  }
  const StrategyResult& nearest = nearest_of(answer.strategies);
  std::vector<Remedy> found =
      fitting(find_remedies(QuestionSubject(question, nearest, options), 1));
  if (!found.empty() && found.front().price == RemedyPrice::nothing) {
    usual.remedy = std::move(found.front());
  }
  return usual;
}

// All packages that make a difference, where they make it clearly faster and nothing offloads more.
std::optional<WithPackages> faster_with(const Question& question,
                                        const StrategyResult& chosen,
                                        const PredictOptions& options) {
  const std::vector<Packages> choices = packages_to_try(question.scenario, chosen.plan);
  if (choices.empty()) return std::nullopt;
  const Question with = with_packages(question, choices.back());
  const auto clearly = [&](const StrategyResult& row) {
    return row.result.fits && kSafeShare * comparable_speed(row) > comparable_speed(chosen) &&
           (!is_at_limit(row.result) || is_at_limit(chosen.result));
  };
  auto best = found_roughly(with, options, offload_of(chosen.strategy));
  if (best && clearly(*best)) return WithPackages{choices.back(), std::move(*best)};
  // The fastest may be too near the limit; the plan itself is not.
  for (StrategyResult& row : settle(with, {&chosen.strategy, 1}, options)) {
    if (clearly(row)) return WithPackages{choices.back(), std::move(row)};
  }
  return std::nullopt;
}

// Of rows by the analytic estimate the one that it likes best and the simulator takes, which is
// simulated then; nothing where it takes none of the first few.
std::optional<std::size_t> first_that_fits(const Question& question,
                                           const PredictOptions& options,
                                           std::vector<StrategyResult>& rows) {
  constexpr int kTries = 3;
  std::vector<StrategyResult> untried = rows;
  std::erase_if(untried, [](const StrategyResult& row) { return row.simulated; });
  for (int i = 0; i < kTries; ++i) {
    const auto best = best_of(untried);
    if (!best) return std::nullopt;
    const Strategy strategy = untried[*best].strategy;
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const StrategyResult& row) {
      return same_placement(row.strategy, strategy) &&
             row.strategy.checkpointing == strategy.checkpointing;
    });
    std::vector<StrategyResult> settled = settle(question, {&strategy, 1}, options);
    if (same != rows.end() && !settled.empty()) *same = std::move(settled.front());
    if (const auto found = recommended_of(question, rows, options)) return found;
    untried[*best].result.fits = false;
  }
  return std::nullopt;
}

// With the other warnings of the row that is shown. Throws what ended the rows where none is left.
void say_missing(const Question& question, FitAnswer& answer) {
  if (answer.strategies.empty()) question.missing->rethrow();
  const Phrase missing = question.missing->sentence();
  if (missing.empty()) return;
  const std::size_t shown =
      answer.recommended.value_or(&nearest_of(answer.strategies) - answer.strategies.data());
  answer.strategies[shown].result.warnings.push_back(missing);
}

// The same plan with the allocator's segments expanding, where it runs near the GPU's limit.
std::optional<StepResult> with_expandable_segments(const Question& question,
                                                   const StrategyResult& chosen,
                                                   const PredictOptions& options) {
  constexpr double kWorthALine = 0.01;  // of the step, and of the GPU's memory
  const StepResult& now = chosen.result;
  const bool flushes = now.step.device_memory / now.step.total >= kWorthALine;
  if (!(is_at_limit(now) || flushes) || !may_expand_segments(chosen.plan)) return std::nullopt;
  Question with = question;
  set(with, ScenarioKey::expandable_segments, Json(true));
  const Workload& work = chosen.plan.workload;
  StepResult there =
      played(plan_strategy(
                 with, chosen.strategy, {work.micro_batch_size, work.gradient_accumulation_steps}),
             options);
  const Bytes less = now.gpu.peak_total - std::min(now.gpu.peak_total, there.gpu.peak_total);
  const bool spares = static_cast<double>(less.count()) >=
                      kWorthALine * static_cast<double>(now.gpu.capacity.count());
  const bool faster = there.step.total * (1.0 + kWorthALine) <= now.step.total;
  if (!there.fits || !(spares || faster)) return std::nullopt;
  return there;
}

// The strategy that `fit` chooses for the changed question.
std::optional<StrategyResult> chosen_after(const Question& question,
                                           const Variation& change,
                                           const PredictOptions& options) {
  Question changed = varied(question, change);
  changed.missing = std::make_shared<MissingRows>();  // those of the question are named once
  FitAnswer answer = try_strategies(changed, options);
  if (!answer.recommended || answer.needs.any()) return std::nullopt;
  return std::move(answer.strategies[*answer.recommended]);
}

// DeepSpeed shards nothing on one GPU, and keeps fp32 copies that the Trainer alone has not.
std::optional<StrategyResult> without_deepspeed(const Question& question,
                                                const StrategyResult& chosen,
                                                const PredictOptions& options) {
  const Scenario& asked = question.scenario;
  if (asked.find(ScenarioKey::ds_config) != nullptr || !may_leave_deepspeed(asked, chosen.plan)) {
    return std::nullopt;
  }
  auto alone = chosen_after(question, {{{ScenarioKey::engine, Json("ddp")}}, {}, {}}, options);
  if (!alone) return std::nullopt;
  // Any speed is worth a line where the recommended one asks for more host memory than is usual.
  const StepResult& with = chosen.result;
  const StepResult& without = alone->result;
  const double enough = with.host_condition && !without.host_condition ? 0.0
                        : is_at_limit(with) && !is_at_limit(without)
                            ? comparable_speed(chosen)
                            : comparable_speed(chosen) / kSafeShare;
  return comparable_speed(*alone) > enough ? std::move(alone) : std::nullopt;
}

void take_remedies(const Question& question,
                   const PredictOptions& options,
                   Remedies found,
                   FitAnswer& answer) {
  for (const TriedRemedy& one : found.tried) {
    if (!one.fits()) answer.tried.push_back(one.change);
  }
  const std::size_t told = std::min(kToldRemedies, found.that_fit.size());
  parallel_for(told, machine_threads(), [&](std::size_t i) {
    TriedRemedy& one = found.tried[found.that_fit[i]];
    defect_in([&] {
      if (auto chosen = chosen_after(question, one.variation, options)) one.outcome = chosen;
    });
  });
  answer.remedies = fitting(std::move(found));
}

}  // namespace

// The strategies that offload at most so far, each with its best batch, by the analytic estimate.
std::vector<StrategyResult> estimated(const Question& question,
                                      const PredictOptions& options,
                                      int most_offload) {
  const std::vector<Strategy> all = strategies(question);
  std::vector<StrategyResult> rows;
  for (const std::span<const Strategy> alike : by_placement(all)) {
    if (offload_of(alike.front()) > most_offload) continue;
    question.missing->attempt_or_refuse(describe(alike.front()), [&] {
      auto group = settle(question, alike, options, Depth::closed_form);
      spare_host_memory(question, options, Depth::closed_form, group);
      std::move(group.begin(), group.end(), std::back_inserter(rows));
    });
  }
  if (rows.empty() && !question.missing->sentence().empty()) question.missing->rethrow();
  return rows;
}

std::optional<StrategyResult> found_roughly(const Question& question,
                                            const PredictOptions& options,
                                            int most_offload) {
  std::vector<StrategyResult> roughly = estimated(question, options, most_offload);
  // What fits, or is fastest, by the analytic estimate alone is not the answer: the next one may
  // be.
  constexpr int kTries = 3;
  std::vector<StrategyResult> simulated;
  for (int i = 0; i < kTries; ++i) {
    const auto found = best_of(roughly);
    if (!found) break;
    StrategyResult& rough = roughly[*found];
    const auto so_far = best_of(simulated);
    if (so_far && comparable_speed(rough) < kSafeShare * comparable_speed(simulated[*so_far]))
      break;
    for (StrategyResult& row : settle(question, {&rough.strategy, 1}, options)) {
      simulated.push_back(std::move(row));
    }
    rough.result.fits = false;
  }
  const auto best = recommended_of(question, simulated, options);
  if (!best) return std::nullopt;
  return std::move(simulated[*best]);
}

FitAnswer strategies_alone(const Scenario& scenario, const PredictOptions& options) {
  Question question = ask(scenario);
  FitAnswer answer = try_strategies(question, options);
  say_missing(question, answer);
  return answer;
}

FitAnswer quick_fit(const Scenario& scenario, const PredictOptions& options) {
  const Question question = ask(scenario);
  const std::vector<Strategy> all = strategies(question);
  std::vector<std::span<const Strategy>> groups = by_placement(all);
  const auto offload = [](const std::span<const Strategy>& alike) {
    return offload_of(alike.front());
  };
  std::stable_sort(groups.begin(), groups.end(), [&](const auto& a, const auto& b) {
    return offload(a) < offload(b);
  });
  FitAnswer answer;
  answer.complete = false;
  for (std::size_t i = 0; i < groups.size() && !answer.recommended; ++i) {
    question.missing->attempt_or_refuse(describe(groups[i].front()), [&] {
      for (StrategyResult& row : settle(question, groups[i], options, Depth::closed_form))
        answer.strategies.push_back(std::move(row));
    });
    const bool more = i + 1 < groups.size() && offload(groups[i + 1]) == offload(groups[i]);
    if (!more) answer.recommended = first_that_fits(question, options, answer.strategies);
  }
  say_missing(question, answer);
  return answer;
}

FitAnswer fit(const Scenario& scenario, const PredictOptions& options) {
  const Question asked = ask(scenario);
  Question question = asked;
  FitAnswer answer = try_strategies(question, options);
  answer.behind_host_memory = behind_host_memory(answer.strategies, answer.recommended);
  if (answer.recommended) {
    const std::size_t best = *answer.recommended;
    answer.runners_up = runners_up(answer.strategies, best);
    const StrategyResult& chosen = answer.strategies[best];
    MissingRows& missing = *question.missing;
    if (chosen.result.host_condition) {
      missing.attempt("the usual host memory",
                      [&] { answer.usual_host = on_usual_host(asked, options); });
    }
    missing.attempt("headroom", [&] { answer.headroom = headroom_of(question, chosen, options); });
    missing.attempt("one node", [&] { answer.one_node = on_one_node(question, options); });
    missing.attempt("with expandable segments", [&] {
      answer.with_expandable_segments = with_expandable_segments(question, chosen, options);
    });
    missing.attempt("with other packages",
                    [&] { answer.faster_with = faster_with(question, chosen, options); });
    missing.attempt("without DeepSpeed", [&] {
      answer.without_deepspeed = without_deepspeed(question, chosen, options);
    });
  } else {
    take_remedies(question,
                  options,
                  find_remedies(QuestionSubject(question, nearest_of(answer.strategies), options)),
                  answer);
  }
  say_missing(question, answer);
  return answer;
}

}  // namespace zeroplan::tuner
