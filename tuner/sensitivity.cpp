#include "tuner/sensitivity.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "model/predict/host_memory.hpp"
#include "simulator/simulate.hpp"
#include "tuner/knob_effect.hpp"
#include "tuner/packages.hpp"
#include "tuner/strategies.hpp"

namespace zeroplan::tuner {
namespace {

double number(const Json& value) {
  if (value.is_boolean()) return value.as_boolean() ? 1.0 : 0.0;
  return value.is_number() ? value.as_number() : 0.0;
}

Json to_json(const KnobLiteral& literal) {
  switch (literal.kind) {
    case KnobLiteral::Kind::boolean:
      return Json(literal.integer != 0);
    case KnobLiteral::Kind::integer:
      return Json(literal.integer);
    case KnobLiteral::Kind::real:
      return Json(literal.real);
    case KnobLiteral::Kind::text:
      return Json(literal.text);
    case KnobLiteral::Kind::none:
    case KnobLiteral::Kind::json:
      break;
  }
  return {};
}

// Does the knob act on this run? Batch sizes belong to the workload.
bool acts(const KnobRow& row, const Plan& plan) {
  if (!row.modelled || row.grid.empty() || !row.affects.any()) return false;
  if (row.id == Knob::train_micro_batch_size_per_gpu ||
      row.id == Knob::gradient_accumulation_steps) {
    return false;
  }
  return has_effect(row.id,
                    {plan.engine.stage,
                     plan.engine.offload_optimizer.device,
                     plan.engine.offload_parameter.device});
}

// Next below, next above, lowest, highest; texts: all others.
std::vector<Json> points(const KnobRow& row, const Json& now) {
  std::vector<Json> values;
  if (row.type == KnobType::text || row.type == KnobType::boolean) {
    for (const KnobLiteral& literal : row.grid) {
      if (to_json(literal) != now) values.push_back(to_json(literal));
    }
    return values;
  }
  std::vector<Json> grid;
  for (const KnobLiteral& literal : row.grid) grid.push_back(to_json(literal));
  std::sort(
      grid.begin(), grid.end(), [](const Json& a, const Json& b) { return number(a) < number(b); });
  std::optional<Json> below;
  std::optional<Json> above;
  for (const Json& point : grid) {
    if (number(point) < number(now)) below = point;
    if (number(point) > number(now) && !above) above = point;
  }
  const auto add = [&](const Json& value) {
    const bool known = std::any_of(values.begin(), values.end(), [&](const Json& other) {
      return number(other) == number(value);
    });
    if (!known && number(value) != number(now)) values.push_back(value);
  };
  add(grid.front());
  if (below) add(*below);
  if (above) add(*above);
  add(grid.back());
  return values;
}

void add_workload_moves(const Plan& base, std::vector<Variation>& moves) {
  const Workload& workload = base.workload;
  const auto add = [&](ScenarioKey key, Json value) {
    moves.push_back({{{key, std::move(value)}}});
  };
  const auto halves_and_doubles = [&](ScenarioKey key, std::int64_t now) {
    if (now % 2 == 0) add(key, Json(now / 2));
    add(key, Json(now * 2));
  };
  halves_and_doubles(ScenarioKey::micro_batch_size, workload.micro_batch_size);
  halves_and_doubles(ScenarioKey::gradient_accumulation_steps,
                     workload.gradient_accumulation_steps);
  halves_and_doubles(ScenarioKey::sequence_length, workload.sequence_length);
  if (workload.micro_batch_size % 2 == 0) {  // the same batch in smaller parts
    moves.push_back({{{ScenarioKey::micro_batch_size, Json(workload.micro_batch_size / 2)},
                      {ScenarioKey::gradient_accumulation_steps,
                       Json(workload.gradient_accumulation_steps * 2)}}});
  }
  for (const ActivationCheckpointing kind :
       {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
    if (kind == workload.activation_checkpointing) continue;
    add(ScenarioKey::activation_checkpointing, Json(name(kActivationCheckpointingNames, kind)));
  }
  for (const Attention kind : {Attention::eager, Attention::sdpa, Attention::flash}) {
    if (kind == workload.attention) continue;
    add(ScenarioKey::attention, Json(name(kAttentionNames, kind)));
  }
  const auto load = [&](Loading loading) {
    add(ScenarioKey::loading, Json(name(kLoadingNames, loading)));
  };
  if (converts_while_loading(base)) load(Loading::converted);
  if (fills_while_loading(base)) load(Loading::every_rank);
  if (may_expand_segments(base)) add(ScenarioKey::expandable_segments, Json(true));
}

double measured(const StepResult& result, Measure measure) {
  switch (measure) {
    case Measure::gpu_memory:
      return static_cast<double>(result.gpu.peak_total.count());
    case Measure::host_memory:
      return static_cast<double>(result.host.peak.count());
    case Measure::step_time:
      break;
  }
  return result.step.total.seconds();
}

}  // namespace

std::vector<Variation> moves_of(const Plan& base) {
  std::vector<Variation> moves;
  if (runs_deepspeed(base.workload)) {
    for (const KnobRow& row : knob_rows()) {
      if (!acts(row, base)) continue;
      for (const Json& value : points(row, value_of(base, row.id))) {
        if (!is_possible(row.id, knob_value(row.id, value), base.cluster)) continue;
        moves.push_back({{{row.id, value}}});
      }
    }
  }
  add_workload_moves(base, moves);
  return moves;
}

Sensitivity sensitivity(const Variations& variations,
                        const PredictOptions& options,
                        const Deadline& deadline) {
  Sensitivity all;
  all.base = simulator::simulate(variations.base(), {.predict = options, .other_networks = false});
  const std::vector<Variation> moves = moves_of(variations.base());
  std::vector<VariedResult> results = variations.simulate_all(moves, options, deadline);
  for (std::size_t i = 0; i < moves.size(); ++i) {
    if (results[i].result) {
      all.moves.push_back({moves[i], std::move(*results[i].result)});
    } else if (results[i].refusal.empty()) {
      all.complete = false;
    } else {
      all.refused.push_back({moves[i], results[i].refusal});
    }
  }
  return all;
}

std::int64_t added_gpu_bytes(const Sensitivity& all, const Move& move) {
  return move.result.gpu.peak_total.count() - all.base.gpu.peak_total.count();
}

std::int64_t added_host_bytes(const Sensitivity& all, const Move& move) {
  return move.result.host.peak.count() - all.base.host.peak.count();
}

double added_seconds(const Sensitivity& all, const Move& move) {
  return move.result.step.total.seconds() - all.base.step.total.seconds();
}

std::vector<std::size_t> largest_movers(const Sensitivity& all, Measure measure, std::size_t most) {
  constexpr double kNoticeable = 0.01;
  const double base = measured(all.base, measure);
  const auto added = [&](std::size_t i) { return measured(all.moves[i].result, measure) - base; };
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < all.moves.size(); ++i) {
    if (std::abs(added(i)) >= kNoticeable * base) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::abs(added(a)) > std::abs(added(b));
  });
  std::set<std::pair<std::string, bool>> shown;
  std::vector<std::size_t> movers;
  for (const std::size_t i : order) {
    if (movers.size() == most) break;
    std::string keys;
    for (const Change& change : all.moves[i].variation.changes) keys += spelling(change);
    if (shown.emplace(keys, added(i) > 0).second) movers.push_back(i);
  }
  return movers;
}

}  // namespace zeroplan::tuner
