// Predictions validated against measurements: one row for every measured value, one reason for
// every measurement that cannot be held, and a summary (docs/contract.md section 5,
// zeroplan.validate/1).
//
// error = (predicted - measured) / measured. Lines with the same scenario are repeats: each has its
// rows, and the summary scores the prediction once against their median. A scenario counts with one
// time metric: step_seconds, else tokens_per_second_per_gpu, else samples_per_second.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "evidence/measurement.hpp"
#include "model/cost/profile.hpp"

namespace zeroplan::evidence {

struct ValidateOptions {
  double confidence = 0.95;  // of a verdict
  std::int64_t jobs = 1;     // threads; the report does not depend on it
  std::string tiers;         // letters of the tiers that count; empty: all
};

struct ValidatedRow {
  std::string file;
  std::string id;
  std::string source;
  std::string tier;
  std::string strategy;      // "ZeRO-3, optimizer on CPU"
  std::size_t scenario = 0;  // equal for repeats
  Metric metric = Metric::fits;
  double measured = 0.0;  // in the metric's own unit; 0 or 1 for fits
  double predicted = 0.0;
  std::optional<double> error;  // none for fits
  double likely = 0.0;  // predicted, with what is unspecified as a run that ran can have had it
  double low = 0.0;     // of the 90 % interval; for fits of no meaning
  double high = 0.0;
  bool inside_interval = false;  // for fits: the likelier verdict is what was measured
  double probability = 0.0;      // that the scenario fits
  double free_share = 0.0;       // of the GPU's memory, as far as measured; 0 where unknown
  double step_seconds = 0.0;     // predicted, whatever the metric: turns rates into times
  std::string why;               // what is largest, and the keys that are unspecified
};

struct SkippedRow {
  std::string file;
  std::string id;
  std::string source;
  std::string reason;
};

// Errors of one set of predictions.
struct ErrorSummary {
  std::size_t rows = 0;  // repeats count once
  double median_abs_error = 0.0;
  double p95_abs_error = 0.0;
  double median_error = 0.0;       // with its sign: what is systematic
  double interval_coverage = 0.0;  // share of rows inside their interval
  double median_half_width = 0.0;  // of the intervals, relative to their middle
  double likely_median_abs_error = 0.0;
  double likely_p95_abs_error = 0.0;
};

struct MetricSummary {
  Metric metric = Metric::fits;
  std::string source;  // "*": all
  ErrorSummary errors;
};

// How verdicts did, over scenarios with a measured `fits`.
struct VerdictSummary {
  std::size_t rows = 0;
  std::size_t right = 0;           // at probability 0.5
  std::size_t failed = 0;          // rows that did not fit
  std::size_t wrong_fits = 0;      // of these, said to fit at the confidence
  std::size_t with_room = 0;       // ran with at least 15 % of the memory free, as measured
  std::size_t with_room_said = 0;  // of these, said to fit at the confidence
};

struct ValidationReport {
  std::size_t scenarios = 0;  // distinct ones that were predicted
  std::vector<ValidatedRow> rows;
  std::vector<SkippedRow> skipped;
  std::vector<MetricSummary> summary;  // source "*" first, sources in their order of appearance
  std::vector<Diagnostic> bad_lines;
};

ValidationReport validate(const std::vector<MeasurementFile>& files,
                          const ValidateOptions& options = {});

// The rows that count: one for each scenario and scored metric, with the median of the repeats as
// its measured value.
std::vector<ValidatedRow> scored_rows(const std::vector<ValidatedRow>& rows);

// Of scored rows. Percentiles interpolate linearly between the two nearest ranks.
ErrorSummary summarize(const std::vector<ValidatedRow>& scored);
VerdictSummary summarize_verdicts(const std::vector<ValidatedRow>& rows, double confidence);

// The errors of those of `scored` whose metric counts, by kind of plan, of "all" last; with the
// likely values where a measurement leaves keys open.
std::vector<KnownErrors> errors_by_kind(const std::vector<ValidatedRow>& scored,
                                        bool (*counts)(Metric));

// The profile `base` (null: one without figures) with the errors of the report as its `validated`.
Json validated_profile(const Json& base, const ValidationReport& report, const std::string& date);

Json to_json(const ValidationReport& report, const ValidateOptions& options = {});

}  // namespace zeroplan::evidence
