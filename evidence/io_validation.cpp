// The documents of `zeroplan validate`: --json, and the profile of -o.
#include <cmath>

#include <fmt/format.h>

#include "evidence/validate.hpp"

namespace zeroplan::evidence {
namespace {

Json number(double value) {
  constexpr double kExact = 9007199254740992.0;
  if (std::abs(value) <= kExact && value == std::floor(value)) {
    return Json(static_cast<std::int64_t>(value));
  }
  return Json(value);
}

Json row_json(const ValidatedRow& row) {
  const bool verdict = row.metric == Metric::fits;
  const auto value = [&](double x) { return verdict ? Json(x == 1.0) : number(x); };
  return Json::object({{"id", row.id},
                       {"source", row.source},
                       {"metric", name(row.metric)},
                       {"measured", value(row.measured)},
                       {"predicted", value(row.predicted)},
                       {"error", row.error ? Json(*row.error) : Json()},
                       {"likely", row.error ? Json(row.likely) : Json()},
                       {"inside_interval", row.inside_interval},
                       {"probability", row.probability},
                       {"interval", verdict ? Json() : Json::array({row.low, row.high})},
                       {"file", row.file},
                       {"tier", row.tier.empty() ? Json() : Json(row.tier)},
                       {"strategy", row.strategy},
                       {"why", row.why}});
}

Json errors_json(const ErrorSummary& errors) {
  const bool none = errors.rows == 0;
  const auto value = [&](double x) { return none ? Json() : Json(x); };
  return Json::object({{"rows", errors.rows},
                       {"median_abs_error", value(errors.median_abs_error)},
                       {"p95_abs_error", value(errors.p95_abs_error)},
                       {"interval_coverage", value(errors.interval_coverage)},
                       {"median_error", value(errors.median_error)},
                       {"median_half_width", value(errors.median_half_width)},
                       {"likely_median_abs_error", value(errors.likely_median_abs_error)},
                       {"likely_p95_abs_error", value(errors.likely_p95_abs_error)}});
}

// The accuracy gates of docs/design.md: rows of the tiers A and B.
Json gates_json(const ValidationReport& report, double confidence) {
  std::vector<ValidatedRow> rows;
  for (const ValidatedRow& row : report.rows) {
    if (row.tier == "A" || row.tier == "B") rows.push_back(row);
  }
  std::vector<ValidatedRow> peaks;
  std::vector<ValidatedRow> times;
  for (const ValidatedRow& row : scored_rows(rows)) {
    if (is_peak(row.metric)) peaks.push_back(row);
    if (is_time(row.metric)) times.push_back(row);
  }
  const VerdictSummary verdicts = summarize_verdicts(rows, confidence);
  return Json::object({{"tiers", "AB"},
                       {"peak_memory", errors_json(summarize(peaks))},
                       {"step_time", errors_json(summarize(times))},
                       {"verdicts",
                        Json::object({{"rows", verdicts.rows},
                                      {"right", verdicts.right},
                                      {"failed", verdicts.failed},
                                      {"wrong_fits", verdicts.wrong_fits},
                                      {"with_room", verdicts.with_room},
                                      {"with_room_said_to_fit", verdicts.with_room_said}})}});
}

Json rows_json(const std::vector<KnownErrors>& rows) {
  Json list = Json::array();
  for (const KnownErrors& row : rows) list.push_back(to_json(row));
  return list;
}

}  // namespace

Json to_json(const ValidationReport& report, const ValidateOptions& options) {
  Json rows = Json::array();
  for (const ValidatedRow& row : report.rows) rows.push_back(row_json(row));
  Json skipped = Json::array();
  for (const SkippedRow& row : report.skipped) {
    skipped.push_back(Json::object(
        {{"id", row.id}, {"reason", row.reason}, {"source", row.source}, {"file", row.file}}));
  }
  Json summary = Json::array();
  for (const MetricSummary& row : report.summary) {
    Json line = Json::object({{"metric", name(row.metric)}, {"source", row.source}});
    const Json errors = errors_json(row.errors);
    for (const auto& [key, value] : errors.members()) line[key] = value;
    summary.push_back(std::move(line));
  }
  Json document = Json::object({{"schema", "zeroplan.validate/1"}});
  document["scenarios"] = report.scenarios;
  document["gates"] = gates_json(report, options.confidence);
  document["summary"] = std::move(summary);
  document["rows"] = std::move(rows);
  document["skipped"] = std::move(skipped);
  return document;
}

Json validated_profile(const Json& base, const ValidationReport& report, const std::string& date) {
  const std::vector<ValidatedRow> scored = scored_rows(report.rows);
  Json profile = base;
  if (profile.is_null()) {
    profile =
        Json::object({{"schema", "zeroplan.profile/1"},
                      {"name", "validated"},
                      {"date", date},
                      {"provenance", fmt::format("zeroplan validate, {} runs", report.scenarios)},
                      {"values", Json::array()}});
  }
  profile["validated"] = Json::object({{"date", date},
                                       {"memory", rows_json(errors_by_kind(scored, is_peak))},
                                       {"time", rows_json(errors_by_kind(scored, is_time))}});
  return profile;
}

}  // namespace zeroplan::evidence
