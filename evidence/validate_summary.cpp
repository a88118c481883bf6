// What rows of predictions and measurements say together.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.hpp"
#include "evidence/validate.hpp"

namespace zeroplan::evidence {
namespace {

// A share of memory that a run left free and that leaves no doubt that it fits (docs/design.md).
constexpr double kRoom = 0.15;

// Linear interpolation between the two nearest ranks, as numpy.percentile does.
double percentile(std::vector<double> values, double share) {
  ZP_CHECK(!values.empty(), "no percentile of nothing");
  std::sort(values.begin(), values.end());
  const double rank = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  const double part = rank - static_cast<double>(below);
  return values[below] + part * (values[above] - values[below]);
}

// The one row of repeats.
ValidatedRow merged(const std::vector<const ValidatedRow*>& repeats) {
  ValidatedRow row = *repeats.front();
  if (repeats.size() == 1) return row;
  std::vector<double> measured;
  for (const ValidatedRow* repeat : repeats) {
    measured.push_back(repeat->measured);
    row.free_share = std::min(row.free_share, repeat->free_share);
  }
  row.measured = percentile(std::move(measured), 0.5);
  if (row.metric == Metric::fits) {
    row.measured = row.measured > 0.5 ? 1.0 : 0.0;  // as often not: it does not reliably fit
    row.inside_interval = (row.probability >= 0.5) == (row.measured == 1.0);
    return row;
  }
  if (row.measured > 0.0) row.error = (row.predicted - row.measured) / row.measured;
  row.inside_interval = row.low <= row.measured && row.measured <= row.high;
  return row;
}

// One row a scenario and metric, in the order of their first rows.
std::vector<ValidatedRow> without_repeats(const std::vector<ValidatedRow>& rows) {
  std::map<std::pair<std::size_t, Metric>, std::vector<const ValidatedRow*>> repeats;
  for (const ValidatedRow& row : rows) repeats[{row.scenario, row.metric}].push_back(&row);
  std::vector<ValidatedRow> result;
  for (const ValidatedRow& row : rows) {
    const auto& same = repeats[{row.scenario, row.metric}];
    if (same.front() == &row) result.push_back(merged(same));
  }
  return result;
}

}  // namespace

std::vector<ValidatedRow> scored_rows(const std::vector<ValidatedRow>& rows) {
  constexpr Metric kInOrder[] = {
      Metric::step_seconds, Metric::tokens_per_second_per_gpu, Metric::samples_per_second};
  std::map<std::size_t, Metric> time_metric;
  for (const Metric metric : kInOrder) {
    for (const ValidatedRow& row : rows) {
      if (row.metric == metric) time_metric.emplace(row.scenario, metric);
    }
  }
  std::vector<ValidatedRow> result;
  for (ValidatedRow& row : without_repeats(rows)) {
    const bool counts =
        is_memory(row.metric) || (is_time(row.metric) && time_metric[row.scenario] == row.metric);
    if (counts) result.push_back(std::move(row));
  }
  return result;
}

ErrorSummary summarize(const std::vector<ValidatedRow>& scored) {
  ErrorSummary summary;
  std::vector<double> errors;
  std::vector<double> absolute;
  std::vector<double> widths;
  std::vector<double> likely;
  std::size_t inside = 0;
  for (const ValidatedRow& row : scored) {
    if (!row.error) continue;
    errors.push_back(*row.error);
    absolute.push_back(std::abs(*row.error));
    likely.push_back(std::abs((row.likely - row.measured) / row.measured));
    widths.push_back((row.high - row.low) / (row.high + row.low));
    inside += row.inside_interval ? 1 : 0;
  }
  summary.rows = errors.size();
  if (errors.empty()) return summary;
  summary.median_abs_error = percentile(absolute, 0.5);
  summary.p95_abs_error = percentile(absolute, 0.95);
  summary.median_error = percentile(errors, 0.5);
  summary.interval_coverage = static_cast<double>(inside) / static_cast<double>(errors.size());
  summary.median_half_width = percentile(widths, 0.5);
  summary.likely_median_abs_error = percentile(likely, 0.5);
  summary.likely_p95_abs_error = percentile(likely, 0.95);
  return summary;
}

VerdictSummary summarize_verdicts(const std::vector<ValidatedRow>& rows, double confidence) {
  VerdictSummary summary;
  for (const ValidatedRow& row : without_repeats(rows)) {
    if (row.metric != Metric::fits) continue;
    const bool ran = row.measured == 1.0;
    const bool said = row.probability >= confidence;
    ++summary.rows;
    summary.right += row.inside_interval ? 1 : 0;
    if (!ran) {
      ++summary.failed;
      summary.wrong_fits += said ? 1 : 0;
    } else if (row.free_share >= kRoom) {
      ++summary.with_room;
      summary.with_room_said += said ? 1 : 0;
    }
  }
  return summary;
}

std::vector<KnownErrors> errors_by_kind(const std::vector<ValidatedRow>& scored,
                                        bool (*counts)(Metric)) {
  std::map<std::string, std::vector<ValidatedRow>> kinds;
  std::vector<ValidatedRow> all;
  for (const ValidatedRow& row : scored) {
    if (!row.error || !counts(row.metric)) continue;
    kinds[row.strategy].push_back(row);
    all.push_back(row);
  }
  std::vector<KnownErrors> known;
  const auto add = [&](const std::string& kind, const std::vector<ValidatedRow>& rows) {
    const ErrorSummary errors = summarize(rows);
    known.push_back({kind,
                     static_cast<std::int64_t>(errors.rows),
                     errors.likely_median_abs_error,
                     errors.likely_p95_abs_error});
  };
  for (const auto& [kind, rows] : kinds) add(kind, rows);
  if (!all.empty()) add("all", all);
  return known;
}

}  // namespace zeroplan::evidence
