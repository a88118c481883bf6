#include "tuner/tune_reasons.hpp"

#include <algorithm>
#include <cmath>

#include "base/diagnostic.hpp"
#include "base/parallel_for.hpp"
#include "model/predict/predict.hpp"
#include "simulator/simulate.hpp"
#include "tuner/search.hpp"
#include "tuner/variations.hpp"

namespace zeroplan::tuner {
namespace {

// Simulations that are spent on the question whether anything of a space fits.
constexpr std::int64_t kFeasibilityTries = 48;

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

std::string text_of(const KnobValue& value) {
  const Json json = to_json(value);
  return json.is_string() ? json.as_string() : json.dump();
}

std::string key_name(Knob knob) {
  std::string_view pointer = pointer_of(knob);
  constexpr std::string_view kZero = "/zero_optimization/";
  pointer.remove_prefix(pointer.starts_with(kZero) ? kZero.size() : 1);
  std::string text(pointer);
  std::replace(text.begin(), text.end(), '/', '.');
  return text;
}

// One changed key.
struct Change1 {
  std::string key;
  std::string value;
  std::string other;
  Point point;
};

// The point under another strategy: axes that both have keep their value.
Point under(const SearchSpace& space, const Point& point, std::size_t strategy) {
  Point other = point;
  other.strategy = static_cast<std::int32_t>(strategy);
  other.at = {};
  const std::vector<Axis>& from = space.strategies()[index(point.strategy)].axes;
  const std::vector<Axis>& to = space.strategies()[strategy].axes;
  for (std::size_t a = 0; a < to.size(); ++a) {
    for (std::size_t b = 0; b < from.size(); ++b) {
      if (from[b].knob != to[a].knob || point.at[b] >= to[a].values.size()) continue;
      if (text_of(from[b].values[point.at[b]]) == text_of(to[a].values[point.at[b]])) {
        other.at[a] = point.at[b];
      }
    }
  }
  return other;
}

void add_strategy_changes(const SearchSpace& space, const Point& best, std::vector<Change1>& all) {
  const Strategy& now = space.strategies()[index(best.strategy)].strategy;
  for (std::size_t s = 0; s < space.strategies().size(); ++s) {
    const Strategy& other = space.strategies()[s].strategy;
    const bool stage = other.stage != now.stage;
    const bool optimizer = other.offload_optimizer != now.offload_optimizer;
    const bool parameter = other.offload_parameter != now.offload_parameter;
    if (int{stage} + int{optimizer} + int{parameter} != 1) continue;
    const Point point = under(space, best, s);
    if (stage) {
      all.push_back({"stage", std::to_string(now.stage), std::to_string(other.stage), point});
    } else if (optimizer) {
      all.push_back({"offload_optimizer.device",
                     std::string(name(now.offload_optimizer)),
                     std::string(name(other.offload_optimizer)),
                     point});
    } else {
      all.push_back({"offload_param.device",
                     std::string(name(now.offload_parameter)),
                     std::string(name(other.offload_parameter)),
                     point});
    }
  }
}

void add_workload_changes(const SearchSpace& space, const Point& best, std::vector<Change1>& all) {
  const auto& kinds = space.checkpointings();
  for (std::size_t c = 0; c < kinds.size(); ++c) {
    if (static_cast<std::int32_t>(c) == best.checkpointing) continue;
    Point point = best;
    point.checkpointing = static_cast<std::int32_t>(c);
    all.push_back(
        {"activation_checkpointing",
         std::string(name(kActivationCheckpointingNames, kinds[index(best.checkpointing)])),
         std::string(name(kActivationCheckpointingNames, kinds[c])),
         point});
  }
  const BatchSizes now = space.batches()[index(best.batch)];
  for (std::size_t b = 0; b < space.batches().size(); ++b) {
    const BatchSizes other = space.batches()[b];
    Point point = best;
    point.batch = static_cast<std::int32_t>(b);
    const bool micro = other.micro_batch != now.micro_batch;
    const bool steps = other.accumulation != now.accumulation;
    if (micro && !steps) {
      all.push_back({"micro_batch_size",
                     std::to_string(now.micro_batch),
                     std::to_string(other.micro_batch),
                     point});
    } else if (steps && !micro) {
      all.push_back({"gradient_accumulation_steps",
                     std::to_string(now.accumulation),
                     std::to_string(other.accumulation),
                     point});
    } else if (micro &&
               now.micro_batch * now.accumulation == other.micro_batch * other.accumulation) {
      all.push_back({"micro_batch_size at the same batch",
                     std::to_string(now.micro_batch),
                     std::to_string(other.micro_batch),
                     point});
    }
  }
}

void add_axis_changes(const SearchSpace& space, const Point& best, std::vector<Change1>& all) {
  constexpr std::size_t kMany = 3;
  const std::vector<Axis>& axes = space.strategies()[index(best.strategy)].axes;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const Axis& axis = axes[a];
    for (std::size_t v = 0; v < axis.values.size(); ++v) {
      if (v == best.at[a]) continue;
      // The default stands first, the grid's ends second and last.
      const bool end = v == 0 || v == 1 || v + 1 == axis.values.size();
      if (axis.values.size() > kMany && !end) continue;
      Point point = best;
      point.at[a] = static_cast<std::uint8_t>(v);
      all.push_back(
          {key_name(axis.knob), text_of(axis.values[best.at[a]]), text_of(axis.values[v]), point});
    }
  }
}

}  // namespace

std::optional<std::vector<KnobImpact>> knob_impacts(const SearchSpace& space,
                                                    const Evaluated& best,
                                                    const SearchOptions& options,
                                                    std::size_t most,
                                                    const Deadline& deadline) {
  std::vector<Change1> changes;
  add_strategy_changes(space, best.point, changes);
  add_workload_changes(space, best.point, changes);
  add_axis_changes(space, best.point, changes);
  std::vector<Evaluated> results(changes.size());
  const std::int64_t threads = options.jobs > 0 ? options.jobs : machine_threads();
  parallel_for(changes.size(), threads, [&](std::size_t i) {
    if (deadline.over()) return;
    results[i] =
        evaluate(space, changes[i].point, options.limits, options.memo, Numbers::of_what_fits);
  });
  if (deadline.over()) return std::nullopt;
  std::vector<KnobImpact> impacts;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const Change1& change = changes[i];
    auto found = std::find_if(impacts.begin(), impacts.end(), [&](const KnobImpact& impact) {
      return impact.key == change.key;
    });
    if (found == impacts.end()) {
      found = impacts.insert(impacts.end(), {change.key, change.value, "", 0.0, {}});
    }
    if (!results[i].fits) {
      found->unfit.push_back(change.other);
      continue;
    }
    const double speed = results[i].tokens_per_second / best.tokens_per_second - 1.0;
    if (!found->other.empty() && std::abs(speed) <= std::abs(found->speed_change)) continue;
    found->other = change.other;
    found->speed_change = speed;
  }
  for (KnobImpact& impact : impacts) {
    if (impact.other.empty()) impact.speed_change = -1.0;
  }
  std::stable_sort(impacts.begin(), impacts.end(), [](const KnobImpact& a, const KnobImpact& b) {
    return std::abs(a.speed_change) > std::abs(b.speed_change);
  });
  if (impacts.size() > most) impacts.resize(most);
  return impacts;
}

std::optional<Headroom> headroom_of(const SearchSpace& space,
                                    const Evaluated& best,
                                    const SearchOptions& options,
                                    const Deadline& deadline) {
  const auto fits_with = [&](ScenarioKey key, std::int64_t value, bool play) {
    if (deadline.over()) return false;  // the search for the largest ends soon
    try {
      const Plan plan = space.plan_with(best.point, key, value);
      if (!play) return predict(plan, options.limits.predict).fits;
      return simulator::simulate(plan,
                                 {.predict = options.limits.predict,
                                  .other_networks = false,
                                  .verdict_alone = true,
                                  .memo = options.memo})
          .fits;
    } catch (const InputError&) {
      return false;  // longer than the model's positions
    }
  };
  const Plan plan = space.plan(best.point);
  Headroom headroom;
  headroom.largest_micro_batch = largest_played(
      plan.workload.micro_batch_size,
      most_micro_batch(*plan.model),
      [&](std::int64_t n, bool play) { return fits_with(ScenarioKey::micro_batch_size, n, play); });
  const std::int64_t quanta =
      std::max<std::int64_t>(1, sequence_limit(*plan.model) / kSequenceQuantum);
  const std::int64_t longest = largest_played(
      plan.workload.sequence_length / kSequenceQuantum, quanta, [&](std::int64_t n, bool play) {
        return fits_with(ScenarioKey::sequence_length, n * kSequenceQuantum, play);
      });
  headroom.longest_sequence = std::max(longest * kSequenceQuantum, plan.workload.sequence_length);
  if (deadline.over()) return std::nullopt;
  return headroom;
}

std::vector<Cluster> smaller_clusters(const Cluster& cluster) {
  std::vector<Cluster> clusters;
  const auto add = [&](std::int64_t nodes, std::int64_t gpus) {
    Cluster smaller = cluster;
    smaller.nodes = nodes;
    smaller.node.gpus_per_node = gpus;
    if (nodes == 1) smaller.network_assumed = false;
    clusters.push_back(std::move(smaller));
  };
  for (std::int64_t part = 16; part > 1; part /= 2) {
    const std::int64_t gpus = cluster.gpus_per_node() / part;
    if (gpus >= 1 && gpus * part == cluster.gpus_per_node()) add(1, gpus);
  }
  for (std::int64_t nodes = 1; nodes < cluster.nodes; ++nodes) {
    const bool few = cluster.nodes <= 8;
    if (few || (nodes & (nodes - 1)) == 0) add(nodes, cluster.gpus_per_node());
  }
  return clusters;
}

namespace {

SearchOptions any_fit(SearchOptions options, const Deadline& deadline) {
  options.seconds = deadline.left();
  options.goal = SearchGoal::any_fit;
  options.most_evaluated = kFeasibilityTries;
  options.on_progress = nullptr;
  return options;
}

std::optional<Evaluated> anything(const SearchSpace& space,
                                  const SearchOptions& options,
                                  const Deadline& deadline) {
  return search(space, any_fit(options, deadline)).best;
}

}  // namespace

std::optional<std::int64_t> fewest_gpus(const Scenario& scenario,
                                        const SearchRequest& request,
                                        const Prepared& prepared,
                                        const SearchOptions& options,
                                        const Deadline& deadline) {
  for (const Cluster& cluster : smaller_clusters(*prepared.cluster)) {
    Prepared smaller = prepared;
    smaller.cluster = std::make_shared<const Cluster>(cluster);
    try {
      const SearchSpace space(scenario, request, smaller);
      if (anything(space, options, deadline)) return cluster.total_gpus();
    } catch (const InputError&) {
      continue;  // a global batch that so few ranks do not make
    }
    if (deadline.over()) return std::nullopt;
  }
  return prepared.cluster->total_gpus();
}

std::optional<Relaxation> nearest_fit(const Scenario& scenario,
                                      const SearchRequest& request,
                                      const Prepared& prepared,
                                      const SearchOptions& options,
                                      const Deadline& deadline) {
  SearchOptions relaxed = options;
  SearchRequest wider = request;
  Phrase change;
  const auto attempt = [&](const Phrase& next) -> std::optional<Relaxation> {
    change = change.empty() ? next : phrase("{}, {}", change, next);
    if (deadline.over()) return std::nullopt;
    const SearchSpace space(scenario, wider, prepared);
    const auto found = anything(space, relaxed, deadline);
    if (!found) return std::nullopt;
    Plan plan = space.plan(found->point);
    StepResult result = simulator::simulate(plan, {.predict = relaxed.limits.predict});
    return Relaxation{change, std::move(result), std::move(plan)};
  };
  if (relaxed.limits.tokens_per_second > 0.0) {
    relaxed.limits.tokens_per_second = 0.0;
    if (auto found = attempt("without --min-throughput")) return found;
  }
  if (!relaxed.limits.host_memory.is_infinite()) {
    relaxed.limits.host_memory = Bytes::infinite();
    if (auto found = attempt("without --max-host-memory")) return found;
  }
  if (relaxed.limits.predict.reserve > Bytes::zero()) {
    relaxed.limits.predict.reserve = Bytes::zero();
    if (auto found = attempt("with the whole GPU memory")) return found;
  }
  const bool restricted = !wider.knobs.empty() || !wider.micro_batches.empty() ||
                          !wider.accumulations.empty() || !wider.checkpointings.empty() ||
                          wider.global_batch.has_value();
  if (restricted) {
    wider = {};
    if (auto found = attempt("without --fix and --search")) return found;
  }
  return std::nullopt;
}

}  // namespace zeroplan::tuner
