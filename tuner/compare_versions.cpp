#include "tuner/compare_versions.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/parallel_for.hpp"
#include "model/knobs/knobs.hpp"
#include "model/release_table.hpp"
#include "simulator/simulate.hpp"
#include "simulator/simulation_memo.hpp"
#include "tuner/missing_rows.hpp"
#include "tuner/variations.hpp"

namespace zeroplan::tuner {
namespace {

// One difference between two sets, before it is tried.
struct Difference {
  std::optional<ReleaseRule> rule;
  std::optional<ChangedDefault> changed;
  KnobValue older;  // of `changed`
  std::optional<ChangedClass> recorded;
  bool begins = true;
};

// A set without one of its differences.
struct Job {
  std::size_t set = 0;
  Difference without;
};

std::vector<Difference> differences(const ComparedSet& older,
                                    const ComparedSet& newer,
                                    const DsConfig& written) {
  std::vector<Difference> found;
  const ChangedClass classes{older.plan.model->releases.recorded,
                             newer.plan.model->releases.recorded};
  const bool are_recorded = classes.older != Version{} && classes.newer != Version{};
  if (are_recorded && classes.older != classes.newer) found.push_back({.recorded = classes});
  const bool deepspeed = runs_deepspeed(newer.plan.workload);
  for (const ReleaseRow& row : release_rows()) {
    if (!deepspeed && row.package == Package::deepspeed) continue;
    const bool before = acts(row.rule, release_of(older.releases, row.package));
    const bool after = acts(row.rule, release_of(newer.releases, row.package));
    if (before != after) found.push_back({.rule = row.rule, .begins = after});
  }
  if (!deepspeed) return found;
  const int stage = static_cast<int>(written.integer(Knob::zero_stage).value_or(0));
  for (const KnobRow& row : knob_rows()) {
    if (written.is_set(row.id)) continue;
    const KnobValue before = default_value(row.id, stage, older.releases.deepspeed);
    const KnobValue after = default_value(row.id, stage, newer.releases.deepspeed);
    if (before == after || std::holds_alternative<Unset>(before)) continue;
    found.push_back(
        {.changed = ChangedDefault{row.id, to_json(before).dump(), to_json(after).dump()},
         .older = before});
  }
  return found;
}

Phrase words_of(const Difference& difference) {
  if (difference.rule) return release_row(*difference.rule).does;
  if (difference.recorded) return "the class's code";
  return std::string(pointer_of(difference.changed->knob));
}

class Comparison {
 public:
  Comparison(const Scenario& scenario,
             const Prepared& prepared,
             const std::vector<ReleaseSet>& sets,
             const PredictOptions& options,
             const ShareDone& on_progress)
      : scenario_(scenario),
        prepared_(prepared),
        sets_(sets),
        options_(options),
        on_progress_(on_progress) {
    const ExplicitValue* said = scenario.find(ScenarioKey::ds_config);
    if (prepared_.ds_config == nullptr && said != nullptr) {
      DsConfig config = read_ds_config_of(*said);
      say_precision(resolve(scenario, prepared), config);
      prepared_.ds_config = std::make_shared<const DsConfig>(std::move(config));
    }
  }

  ComparedVersions answer() {
    std::vector<ComparedSet> compared = whole_sets();
    if (compared.empty()) missing_.rethrow();
    std::vector<Job> jobs;
    for (std::size_t i = 1; i < compared.size(); ++i) {
      std::vector<Difference> found = differences(compared[i - 1], compared[i], written());
      compared[i].differences = found.size();
      for (Difference& difference : found) jobs.push_back({i, std::move(difference)});
    }
    std::vector<std::optional<StepResult>> results(jobs.size());
    PiecesDone done(on_progress_, jobs.size());
    parallel_for(jobs.size(), machine_threads(), [&](std::size_t j) {
      const ReleaseSet& releases = compared[jobs[j].set].releases;
      missing_.attempt_or_refuse(
          phrase("{} without \"{}\"", label(releases), words_of(jobs[j].without)),
          [&] { results[j] = played(plan_of(releases, jobs[j].without)); });
      done.add();
    });
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      ComparedSet& set = compared[jobs[j].set];
      if (results[j]) {
        add_effect(jobs[j].without, *results[j], set);
      } else {
        --set.differences;  // nobody knows what it does
      }
    }
    for (ComparedSet& set : compared) sort_effects(set);
    return {std::move(compared), missing_.sentence()};
  }

 private:
  std::vector<ComparedSet> whole_sets() {
    std::vector<ComparedSet> all(sets_.size());
    std::vector<char> done(sets_.size(), 0);
    parallel_for(sets_.size(), machine_threads(), [&](std::size_t i) {
      all[i].releases = sets_[i];
      const bool played_it = missing_.attempt_or_refuse(label(sets_[i]), [&] {
        all[i].plan = plan_of(sets_[i], std::nullopt);
        all[i].result = played(all[i].plan);
      });
      done[i] = played_it ? 1 : 0;
    });
    std::vector<ComparedSet> compared;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (done[i] != 0) compared.push_back(std::move(all[i]));
    }
    return compared;
  }

  StepResult played(const Plan& plan) {
    return simulator::simulate(plan,
                               {.predict = options_, .other_networks = false, .memo = &memo_});
  }

  DsConfig written() const {
    if (prepared_.ds_config != nullptr) return *prepared_.ds_config;
    DsConfig none;
    none.set(Knob::zero_stage, std::int64_t{3});  // what resolve() takes where nobody says
    return none;
  }

  Plan plan_of(const ReleaseSet& releases, const std::optional<Difference>& without) const {
    const Scenario scenario = under(scenario_, releases);
    if (!without) return resolve(scenario, prepared_);
    Prepared prepared = prepared_;
    if (without->rule) {
      prepared.switched.flip(*without->rule);
    } else if (without->recorded) {
      prepared.class_of = without->recorded->older;
    } else {
      DsConfig config = written();
      config.set(without->changed->knob, without->older);
      prepared.ds_config = std::make_shared<const DsConfig>(std::move(config));
    }
    return resolve(scenario, prepared);
  }

  static void add_effect(const Difference& without, const StepResult& result, ComparedSet& set) {
    ReleaseEffect effect{.rule = without.rule,
                         .changed = without.changed,
                         .recorded = without.recorded,
                         .begins = without.begins};
    effect.gpu_memory = set.result.gpu.peak_total - result.gpu.peak_total;
    effect.host_memory = set.result.host.peak - result.host.peak;
    // Steps that are counted sum up the same times in another order.
    constexpr double kRounding = 1e-9;
    const Seconds longer = set.result.step.total - result.step.total;
    const bool is_rounding = std::abs(longer / set.result.step.total) <= kRounding;
    effect.step_time = is_rounding ? Seconds::zero() : longer;
    const bool moves = effect.gpu_memory != Bytes::zero() || effect.host_memory != Bytes::zero() ||
                       effect.step_time != Seconds::zero();
    if (moves) set.effects.push_back(std::move(effect));
  }

  static void sort_effects(ComparedSet& set) {
    const auto weight = [&set](const ReleaseEffect& effect) {
      const auto share = [](double part, double whole) {
        return whole > 0.0 ? std::abs(part) / whole : 0.0;
      };
      const StepResult& whole = set.result;
      return std::max({share(static_cast<double>(effect.gpu_memory.count()),
                             static_cast<double>(whole.gpu.peak_total.count())),
                       share(static_cast<double>(effect.host_memory.count()),
                             static_cast<double>(whole.host.peak.count())),
                       share(effect.step_time.value(), whole.step.total.value())});
    };
    std::stable_sort(
        set.effects.begin(),
        set.effects.end(),
        [&](const ReleaseEffect& a, const ReleaseEffect& b) { return weight(a) > weight(b); });
  }

  const Scenario& scenario_;
  Prepared prepared_;
  const std::vector<ReleaseSet>& sets_;
  const PredictOptions& options_;
  const ShareDone& on_progress_;
  simulator::SimulationMemo memo_;
  MissingRows missing_;
};

}  // namespace

Version release_of(const ReleaseSet& set, Package package) {
  switch (package) {
    case Package::deepspeed:
      return set.deepspeed;
    case Package::torch:
      return set.torch;
    case Package::transformers:
      return set.transformers;
    case Package::trl:
    case Package::accelerate:
      break;
  }
  return {};
}

std::string label(const ReleaseSet& set, bool with_deepspeed) {
  const std::string others = to_string(set.torch) + " / " + to_string(set.transformers);
  return with_deepspeed ? to_string(set.deepspeed) + " / " + others : others;
}

Scenario under(const Scenario& scenario, const ReleaseSet& set) {
  const Origin origin = {"command line", "--compare-versions"};
  Scenario changed = scenario;
  changed.set(ScenarioKey::deepspeed_version, Json(to_string(set.deepspeed)), origin);
  changed.set(ScenarioKey::torch_version, Json(to_string(set.torch)), origin);
  changed.set(ScenarioKey::transformers_version, Json(to_string(set.transformers)), origin);
  return changed;
}

std::vector<ReleaseSet> usual_release_sets() {
  std::vector<ReleaseSet> sets;
  for (const SoftwareReleases& set : compared_software()) {
    sets.push_back({*set.deepspeed, set.torch, set.transformers});
  }
  return sets;
}

ComparedVersions compare_versions(const Scenario& scenario,
                                  const Prepared& prepared,
                                  const std::vector<ReleaseSet>& sets,
                                  const PredictOptions& options,
                                  const ShareDone& on_progress) {
  return Comparison(scenario, prepared, sets, options, on_progress).answer();
}

}  // namespace zeroplan::tuner
