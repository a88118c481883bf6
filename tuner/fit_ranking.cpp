#include "tuner/fit_ranking.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace zeroplan::tuner {
namespace {

// Relative error of predicted peak memory, median over the published rows (README, accuracy).
constexpr double kMemoryError = 0.05;

bool host_is_open(const StrategyResult& row) {
  return row.plan.cluster.node.host_memory.confidence == Confidence::assumed;
}

// The smaller the simpler.
auto effort_of(const StrategyResult& row) {
  const bool recomputes = row.strategy.checkpointing != ActivationCheckpointing::none;
  return std::tuple(row.result.host_condition.has_value(),
                    offload_of(row.strategy),
                    non_default_knobs(row.plan.ds_config) + (recomputes ? 1 : 0),
                    -comparable_speed(row));
}

// Of the rows that `may` be taken.
template <typename May>
std::optional<std::size_t> best_where(const std::vector<StrategyResult>& rows, const May& may) {
  double fastest = 0.0;
  for (const StrategyResult& row : rows) {
    if (may(row)) fastest = std::max(fastest, comparable_speed(row));
  }
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!may(rows[i]) || comparable_speed(rows[i]) < fastest * (1.0 - kAsFast)) continue;
    if (!best || effort_of(rows[i]) < effort_of(rows[*best])) best = i;
  }
  return best;
}

// With room where that costs little.
template <typename May>
std::optional<std::size_t> best_with_room(const std::vector<StrategyResult>& rows, const May& may) {
  const auto any = best_where(rows, may);
  const auto safe = best_where(
      rows, [&](const StrategyResult& row) { return may(row) && !is_at_limit(row.result); });
  const bool cheap =
      safe && comparable_speed(rows[*safe]) >= kRoomShare * comparable_speed(rows[*any]);
  return cheap ? safe : any;
}

// Strategies that need the same memory at the same speed are one to the reader.
bool same_numbers(const StrategyResult& a, const StrategyResult& b) {
  return a.result.gpu.peak_total == b.result.gpu.peak_total &&
         a.result.host.peak == b.result.host.peak && comparable_speed(a) == comparable_speed(b);
}

bool fits(const StrategyResult& row) { return row.result.fits; }

// A row that does not fit is nearer than another where it is likelier, or as likely and smaller.
bool is_nearer(const StrategyResult& a, const StrategyResult& b) {
  const double likely_a = a.result.fit_probability;
  const double likely_b = b.result.fit_probability;
  if (likely_a != likely_b) return likely_a > likely_b;
  return a.result.gpu.peak_total < b.result.gpu.peak_total;
}

}  // namespace

bool is_at_limit(const StepResult& result) {
  const double room = static_cast<double>(result.gpu.capacity.count()) * (1.0 - kMemoryError);
  return static_cast<double>(result.gpu.peak_total.count()) > room;
}

bool is_preferred(const StrategyResult& a, const StrategyResult& b) {
  if (fits(a) != fits(b)) return fits(a);
  if (!fits(a)) return is_nearer(a, b);
  const bool room_a = !is_at_limit(a.result);
  const bool room_b = !is_at_limit(b.result);
  if (room_a != room_b) {
    const StrategyResult& roomy = room_a ? a : b;
    const StrategyResult& full = room_a ? b : a;
    return room_a == (comparable_speed(roomy) >= kRoomShare * comparable_speed(full));
  }
  const double slower = std::min(comparable_speed(a), comparable_speed(b));
  const double faster = std::max(comparable_speed(a), comparable_speed(b));
  if (slower < faster * (1.0 - kAsFast)) return comparable_speed(a) > comparable_speed(b);
  return effort_of(a) < effort_of(b);
}

std::optional<std::size_t> best_of(const std::vector<StrategyResult>& rows) {
  const bool any = std::any_of(
      rows.begin(), rows.end(), [](const StrategyResult& row) { return row.simulated; });
  return best_with_room(
      rows, [&](const StrategyResult& row) { return fits(row) && (row.simulated || !any); });
}

std::vector<std::size_t> runners_up(const std::vector<StrategyResult>& rows, std::size_t chosen) {
  constexpr std::size_t kMost = 2;
  std::vector<std::size_t> ranked;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i != chosen && fits(rows[i]) && rows[i].simulated) ranked.push_back(i);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [&](std::size_t a, std::size_t b) {
    return comparable_speed(rows[a]) > comparable_speed(rows[b]);
  });
  std::vector<std::size_t> shown = {chosen};
  for (const std::size_t candidate : ranked) {
    const StrategyResult& row = rows[candidate];
    const bool known = std::any_of(shown.begin(), shown.end(), [&](std::size_t other) {
      return same_numbers(row, rows[other]) || same_placement(row.strategy, rows[other].strategy);
    });
    if (!known && shown.size() <= kMost) shown.push_back(candidate);
  }
  return {shown.begin() + 1, shown.end()};
}

std::vector<std::size_t> behind_host_memory(const std::vector<StrategyResult>& rows,
                                            std::optional<std::size_t> chosen) {
  const double clearly = 1.1;
  const double speed = chosen ? comparable_speed(rows[*chosen]) : 0.0;
  std::optional<std::size_t> least, fastest;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const StrategyResult& row = rows[i];
    const std::vector<Limit>& limits = row.result.limits;
    const bool host_alone = limits.size() == 1 &&
                            limits.front().resource == Resource::host_memory &&
                            limits.front().pool == Limit::Pool::none;
    if (fits(row) || !host_is_open(row) || !host_alone || comparable_speed(row) <= clearly * speed)
      continue;
    if (!least || row.result.host.peak < rows[*least].result.host.peak) least = i;
    if (!fastest || comparable_speed(row) > comparable_speed(rows[*fastest])) fastest = i;
  }
  std::vector<std::size_t> found;
  if (least) found.push_back(*least);
  const bool another = fastest && fastest != least &&
                       comparable_speed(rows[*fastest]) > clearly * comparable_speed(rows[*least]);
  if (another) found.push_back(*fastest);
  return found;
}

const StrategyResult& nearest_of(const std::vector<StrategyResult>& rows) {
  return *std::min_element(rows.begin(), rows.end(), is_nearer);
}

Bytes enough_host_memory(Bytes peak, double margin) {
  constexpr double kSpare = 16.0;  // GiB
  const auto gib = static_cast<std::int64_t>(std::ceil(peak.gib() * margin + kSpare));
  return Bytes::gib(round_up(gib, 16));
}

}  // namespace zeroplan::tuner
