#include "tuner/remedies.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <variant>

#include "base/defect.hpp"
#include "base/diagnostic.hpp"
#include "base/parallel_for.hpp"
#include "base/phrase_list.hpp"
#include "tuner/fit_batch.hpp"
#include "tuner/fit_question.hpp"
#include "tuner/headroom.hpp"
#include "tuner/remedy_catalogue.hpp"

namespace zeroplan::tuner {
namespace {

// A plan as it stands.
class PlanSubject : public RemedySubject {
 public:
  PlanSubject(const Variations& variations,
              const StepResult& result,
              const PredictOptions& options,
              std::optional<Resource> resource)
      : variations_(variations), result_(result), options_(options), resource_(resource) {}

  const Scenario& scenario() const override { return variations_.scenario(); }
  const Plan& plan() const override { return variations_.base(); }
  const StepResult& result() const override { return result_; }
  bool chooses_strategy() const override { return false; }
  bool lacks(Resource resource) const override {
    return resource_ ? *resource_ == resource : RemedySubject::lacks(resource);
  }

  std::optional<StrategyResult> roughly(const Variation& change) const override {
    return with(change, [&](const Plan& plan) { return likeliest(plan, options_); });
  }

  std::optional<StrategyResult> best(const Variation& change) const override {
    std::optional<StrategyResult> found = roughly(change);
    if (!found || is_hopeless(found->result)) return found;
    play_if_it_runs(*found, options_, memo_);
    return found;
  }

  bool fits(const Variation& change, const StrategyResult&) const override {
    try {
      return runs(variations_.plan(change), options_, memo_);
    } catch (const InputError&) {
      return false;
    }
  }

 private:
  template <typename Predict>
  std::optional<StrategyResult> with(const Variation& change, const Predict& predict) const {
    try {
      StrategyResult found;
      found.plan = variations_.plan(change);
      found.strategy = strategy_of(found.plan);
      found.result = predict(found.plan);
      return found;
    } catch (const InputError&) {
      return std::nullopt;  // a value that this run cannot have
    }
  }

  const Variations& variations_;
  const StepResult& result_;
  PredictOptions options_;
  std::optional<Resource> resource_;
  mutable simulator::SimulationMemo memo_;
};

bool changes(const Variation& variation, ScenarioKey key) {
  return std::any_of(variation.changes.begin(), variation.changes.end(), [&](const Change& change) {
    return change.key == std::variant<Knob, ScenarioKey>(key);
  });
}

// Another engine beside a way of loading that is about the first.
bool undoes_loading(const Variation& more, const Variation& sum) {
  return changes(more, ScenarioKey::engine) && !changes(more, ScenarioKey::load_device) &&
         (changes(sum, ScenarioKey::load_device) || changes(sum, ScenarioKey::loading));
}

class Finder {
 public:
  Finder(const RemedySubject& subject, std::size_t enough) : subject_(subject), enough_(enough) {}

  Remedies find() {
    const std::vector<RemedyCandidate> candidates = remedy_candidates(subject_);
    for (std::size_t begin = 0, end = 0; begin < candidates.size(); begin = end) {
      if (remedies_.that_fit.size() >= enough_) break;
      // What trains the same, all together, before what trains something else.
      if (candidates[begin].price == RemedyPrice::training && remedies_.that_fit.empty()) {
        defect_in([&] { add_up(candidates, RemedyPrice::speed); });
      }
      while (end < candidates.size() && candidates[end].price == candidates[begin].price) ++end;
      try_all({candidates.data() + begin, end - begin});
    }
    if (remedies_.that_fit.empty()) {
      defect_in([&] { add_up(candidates, RemedyPrice::training); });
    }
    return std::move(remedies_);
  }

 private:
  // The results do not depend on the number of threads.
  void try_all(std::span<const RemedyCandidate> candidates) {
    std::vector<TriedRemedy> tried(candidates.size());
    parallel_for(candidates.size(), machine_threads(), [&](std::size_t i) {
      tried[i] = tried_one(candidates[i], {});
    });
    for (TriedRemedy& one : tried) keep(std::move(one));
  }

  void keep(TriedRemedy one) {
    if (one.fits()) remedies_.that_fit.push_back(remedies_.tried.size());
    remedies_.tried.push_back(std::move(one));
  }

  // Beside `others`, which are made, too.
  TriedRemedy tried_one(const RemedyCandidate& candidate, const Variation& others) const {
    const auto made = [&](std::int64_t size) { return joined(others, candidate.make(size)); };
    const std::int64_t least = candidate.sizes.empty() ? 0 : candidate.sizes.front();
    TriedRemedy tried{candidate.say(least), candidate.price, candidate.make(least), {}};
    // What a defect of the program ends, or the run refuses, is no remedy.
    defect_in([&] {
      try {
        const std::int64_t size = candidate.sizes.empty() ? 0 : least_change(candidate.sizes, made);
        auto outcome = subject_.best(made(size));
        tried = {candidate.say(size), candidate.price, candidate.make(size), std::move(outcome)};
      } catch (const InputError&) {
      }
    });
    return tried;
  }

  // The last of the sizes with which it fits, where it fits up to a point; the first where none
  // does. The analytic estimate is near, the simulator decides.
  template <typename Make>
  std::int64_t least_change(const std::vector<std::int64_t>& sizes, const Make& made) const {
    const auto most = static_cast<std::int64_t>(sizes.size());
    const auto size = [&](std::int64_t n) { return sizes[static_cast<std::size_t>(n - 1)]; };
    std::optional<StrategyResult> like;
    const std::int64_t found = largest_played(0, most, [&](std::int64_t n, bool play) {
      const Variation change = made(size(n));
      if (!play) {
        const auto rough = subject_.roughly(change);
        return rough && rough->result.fits;
      }
      if (like) return subject_.fits(change, *like);
      auto best = subject_.best(change);
      const bool fits = best && best->simulated && best->result.fits;
      if (fits) like = std::move(best);
      return fits;
    });
    return size(std::max<std::int64_t>(1, found));
  }

  // Growing sums in the order of the prices up to `dearest` until the run fits; then without what
  // is not needed.
  void add_up(const std::vector<RemedyCandidate>& candidates, RemedyPrice dearest) {
    std::vector<const RemedyCandidate*> sum;
    const auto frugal = [](const std::vector<const RemedyCandidate*>& parts) {
      Variation all;
      for (const RemedyCandidate* part : parts) {
        all = joined(all, part->make(part->sizes.empty() ? 0 : part->sizes.front()));
      }
      return all;
    };
    // Sums that the analytic estimate refuses are not simulated: of a large model each takes long.
    const auto fits = [&](const std::vector<const RemedyCandidate*>& parts) {
      const auto rough = subject_.roughly(frugal(parts));
      if (!rough || !rough->result.fits) return false;
      const auto best = subject_.best(frugal(parts));
      return best && best->simulated && best->result.fits;
    };
    bool done = false;
    for (const RemedyCandidate& candidate : candidates) {
      if (candidate.price > dearest) break;
      std::vector<const RemedyCandidate*> more = sum;
      if (undoes_loading(frugal({&candidate}), frugal(sum))) continue;
      more.push_back(&candidate);
      if (!subject_.roughly(frugal(more))) continue;  // refused beside the others
      sum = std::move(more);
      if (sum.size() > 1 && fits(sum)) {
        done = true;
        break;
      }
    }
    if (!done) return;
    for (std::size_t i = sum.size() - 1; i-- > 0;) {
      std::vector<const RemedyCandidate*> fewer = sum;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      if (fits(fewer)) sum = std::move(fewer);
    }
    // What has a size is changed no more than is needed, the last first.
    Variation all;
    std::vector<Phrase> texts(sum.size());
    std::optional<TriedRemedy> last;
    for (std::size_t i = sum.size(); i-- > 0;) {
      std::vector<const RemedyCandidate*> before(sum.begin(),
                                                 sum.begin() + static_cast<std::ptrdiff_t>(i));
      last = tried_one(*sum[i], joined(frugal(before), all));
      texts[i] = last->change;
      all = joined(last->variation, all);
    }
    keep({phrase_list(texts, "; "), sum.back()->price, all, std::move(last->outcome)});
  }

  const RemedySubject& subject_;
  std::size_t enough_;
  Remedies remedies_;
};

}  // namespace

bool RemedySubject::lacks(Resource resource) const {
  const std::vector<Limit>& limits = result().limits;
  return std::any_of(
      limits.begin(), limits.end(), [&](const Limit& limit) { return limit.resource == resource; });
}

Remedies find_remedies(const RemedySubject& subject, std::size_t enough) {
  return Finder(subject, enough).find();
}

Remedies find_remedies(const Variations& variations,
                       const StepResult& result,
                       const PredictOptions& options,
                       std::optional<Resource> resource) {
  constexpr std::size_t kEnough = 3;
  return find_remedies(PlanSubject(variations, result, options, resource), kEnough);
}

void say_cheapest_change(const std::vector<Remedy>& fit, StepResult& result) {
  if (fit.empty()) return;
  for (Limit& limit : result.limits) {
    if (limit.cheapest_change.empty()) limit.cheapest_change = fit.front().change;
  }
}

void add_cheapest_change(const Scenario& scenario, StepResult& result) {
  const PredictOptions options;
  const Variations variations(scenario);
  const PlanSubject subject(variations, result, options, std::nullopt);
  say_cheapest_change(fitting(find_remedies(subject, 1)), result);
}

std::vector<Remedy> fitting(Remedies remedies) {
  std::vector<Remedy> list;
  for (const std::size_t i : remedies.that_fit) {
    if (list.size() == kToldRemedies) break;
    TriedRemedy& one = remedies.tried[i];
    list.push_back({std::move(one.change), one.price, std::move(*one.outcome)});
  }
  return list;
}

}  // namespace zeroplan::tuner
