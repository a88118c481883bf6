#include "evidence/measurement.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "base/described.hpp"
#include "base/json_pointer.hpp"
#include "evidence/json_lines.hpp"
#include "model/plan/scenario_reader.hpp"

namespace zeroplan::evidence {
namespace {

enum class MetricKind { bytes, positive, fraction, flag, count };

struct MetricRow {
  Metric metric;
  std::string_view key;
  MetricKind kind;
};

constexpr std::array<MetricRow, kMetricCount> kMetrics = {{
    {Metric::peak_allocated_bytes, "peak_allocated_bytes", MetricKind::bytes},
    {Metric::peak_reserved_bytes, "peak_reserved_bytes", MetricKind::bytes},
    {Metric::peak_total_bytes, "peak_total_bytes", MetricKind::bytes},
    {Metric::static_allocated_bytes, "static_allocated_bytes", MetricKind::bytes},
    {Metric::host_peak_bytes, "host_peak_bytes", MetricKind::bytes},
    {Metric::step_seconds, "step_seconds", MetricKind::positive},
    {Metric::samples_per_second, "samples_per_second", MetricKind::positive},
    {Metric::tokens_per_second_per_gpu, "tokens_per_second_per_gpu", MetricKind::positive},
    {Metric::model_tflops_per_gpu, "model_tflops_per_gpu", MetricKind::positive},
    {Metric::hardware_tflops_per_gpu, "hardware_tflops_per_gpu", MetricKind::positive},
    {Metric::mfu, "mfu", MetricKind::fraction},
    {Metric::fits, "fits", MetricKind::flag},
    {Metric::max_micro_batch_size, "max_micro_batch_size", MetricKind::count},
}};

const MetricRow& row(Metric metric) {
  const MetricRow& found = kMetrics[static_cast<std::size_t>(metric)];
  ZP_CHECK(found.metric == metric, "kMetrics is out of order");
  return found;
}

// Whole numbers up to here are exact as double. 9 PB.
constexpr double kMostWhole = 9007199254740992.0;

bool is_whole(double value) { return std::abs(value) <= kMostWhole && value == std::floor(value); }

std::string_view expected(MetricKind kind) {
  switch (kind) {
    case MetricKind::bytes:
      return "a positive number of bytes";
    case MetricKind::positive:
      return "a positive number";
    case MetricKind::fraction:
      return "a fraction from 0 to 1";
    case MetricKind::flag:
      return "true or false";
    case MetricKind::count:
      return "a whole number from 0";
  }
  return "";
}

bool is_possible(MetricKind kind, double number) {
  if (!std::isfinite(number)) return false;
  switch (kind) {
    case MetricKind::bytes:
      return number >= 1.0 && number <= kMostWhole;
    case MetricKind::fraction:
      return number > 0.0 && number <= 1.0;
    case MetricKind::count:
      return number >= 0.0 && is_whole(number);
    default:
      return number > 0.0;
  }
}

// The value in the metric's unit, or nothing where it cannot be one. Bytes are rounded: sources
// state 9.69 GB.
std::optional<double> metric_value(MetricKind kind, const Json& value) {
  if (kind == MetricKind::flag) {
    if (!value.is_boolean()) return std::nullopt;
    return value.as_boolean() ? 1.0 : 0.0;
  }
  if (!value.is_number() || !is_possible(kind, value.as_number())) return std::nullopt;
  return kind == MetricKind::bytes ? std::round(value.as_number()) : value.as_number();
}

std::string metric_hint(MetricKind kind, const Json& value) {
  if (kind == MetricKind::fraction && value.is_number() && value.as_number() > 1.0) {
    return "43 % is 0.43";
  }
  if (kind == MetricKind::flag) return "measured values that are unknown are left out";
  return "";
}

std::vector<std::string_view> metric_names() {
  std::vector<std::string_view> names;
  names.reserve(kMetrics.size());
  for (const MetricRow& metric : kMetrics) names.push_back(metric.key);
  return names;
}

// Reads the members of one line and collects what is wrong.
class LineReader {
 public:
  LineReader(const JsonDocument& document, std::vector<Diagnostic>& ignored)
      : document_(document), ignored_(ignored) {}

  Measurement read();

 private:
  void problem(std::string pointer, Phrase expected, Phrase got, Phrase hint = "") {
    problems_.push_back(
        {document_.file, std::move(pointer), std::move(expected), std::move(got), std::move(hint)});
  }

  const Json* find(std::string_view key) const {
    const Json* value = document_.root.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  std::string text(std::string_view key, bool required);
  std::optional<int> rank(std::string_view source);
  Scenario scenario();
  Measured measured(bool has_parts);
  Uncertainty uncertainty();
  void report_unknown();

  const JsonDocument& document_;
  std::vector<Diagnostic>& ignored_;
  std::vector<Diagnostic> problems_;
  std::vector<Diagnostic> unknown_;
};

constexpr std::string_view kRehearsal = "rehearsal";  // the source of `zeroplan rehearse -o`
constexpr std::array<std::string_view, 13> kKeys = {"id",
                                                    "source",
                                                    "tier",
                                                    "group",
                                                    "rank",
                                                    "scenario",
                                                    "measured",
                                                    "notes",
                                                    "uncertainty",
                                                    "collectives",
                                                    "kernels",
                                                    // Of scripts/rehearse_matrix.py, for people.
                                                    "reserved_by_events",
                                                    "peak_allocated_by_phase"};

std::string LineReader::text(std::string_view key, bool required) {
  const Json* value = find(key);
  const std::string pointer = "/" + std::string(key);
  if (value == nullptr) {
    if (required) problem(pointer, "a string", "nothing");
    return "";
  }
  if (value->is_string() && !(required && value->as_string().empty())) return value->as_string();
  if (value->is_number()) return value->dump();  // "id": 17
  problem(pointer, required ? "a string that is not empty" : "a string", described(*value));
  return "";
}

std::optional<int> LineReader::rank(std::string_view source) {
  const Json* value = find("rank");
  if (value == nullptr) return source == kRehearsal ? std::optional(0) : std::nullopt;
  constexpr int kMost = 1 << 24;
  const bool whole = value->is_number() && is_whole(value->as_number());
  if (whole && value->as_number() >= 0.0 && value->as_number() < kMost) {
    return static_cast<int>(value->as_number());
  }
  problem("/rank", "a rank, from 0 on", described(*value));
  return std::nullopt;
}

Scenario LineReader::scenario() {
  const Json* value = find("scenario");
  if (value == nullptr) {
    problem("/scenario", "a scenario object", "nothing");
    return {};
  }
  try {
    return parse_scenario(*value, document_.file);
  } catch (const InputError& error) {
    for (Diagnostic wrong : error.diagnostics()) {
      wrong.pointer = "/scenario" + wrong.pointer;
      problems_.push_back(std::move(wrong));
    }
    return {};
  }
}

Measured LineReader::measured(bool has_parts) {
  Measured result;
  const Json* object = find("measured");
  if (object == nullptr && has_parts) return result;
  if (object == nullptr || !object->is_object()) {
    problem("/measured",
            "an object of measured values",
            object == nullptr ? "nothing" : described(*object));
    return result;
  }
  bool wrong = false;
  for (const auto& [key, value] : object->members()) {
    if (value.is_null()) continue;
    const std::string pointer = "/measured/" + pointer_token(key);
    const std::optional<Metric> metric = find_metric(key);
    if (!metric) {
      if (unknown_.size() >= kMostProblems) break;
      unknown_.push_back(
          {document_.file, pointer, "a metric", in_quotes(key), did_you_mean(key, metric_names())});
      continue;
    }
    const MetricKind kind = row(*metric).kind;
    if (const std::optional<double> number = metric_value(kind, value)) {
      result.set(*metric, *number);
    } else {
      problem(pointer, std::string(expected(kind)), described(value), metric_hint(kind, value));
      wrong = true;
    }
  }
  if (result.empty() && !wrong && !has_parts) {
    problem("/measured",
            "at least one measured value",
            described(*object),
            unknown_.empty() ? "" : unknown_.front().hint);
  }
  return result;
}

// A relative standard deviation.
std::optional<double> relative_deviation(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.as_number();
  if (!(number >= 0.0 && number <= 1.0)) return std::nullopt;
  return number;
}

Uncertainty LineReader::uncertainty() {
  Uncertainty result;
  const Json* value = find("uncertainty");
  if (value == nullptr) return result;
  constexpr std::string_view kExpected = "a relative standard deviation from 0 to 1";
  if (value->is_string()) {
    result.text = value->as_string();
  } else if (value->is_object()) {
    for (const auto& [key, item] : value->members()) {
      if (item.is_null()) continue;
      const std::string pointer = "/uncertainty/" + pointer_token(key);
      const std::optional<Metric> metric = find_metric(key);
      if (!metric) {
        if (unknown_.size() >= kMostProblems) break;
        unknown_.push_back({document_.file,
                            pointer,
                            "a metric",
                            in_quotes(key),
                            did_you_mean(key, metric_names())});
      } else if (const auto deviation = relative_deviation(item)) {
        result.by_metric[*metric] = *deviation;
      } else {
        problem(pointer, std::string(kExpected), described(item));
      }
    }
  } else if (const auto deviation = relative_deviation(*value)) {
    result.all = *deviation;
  } else {
    problem("/uncertainty",
            std::string(kExpected) + ", an object of them, or words",
            described(*value));
  }
  return result;
}

void LineReader::report_unknown() {
  for (const auto& [key, value] : document_.root.members()) {
    if (value.is_null() || std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end()) continue;
    if (unknown_.size() >= kMostProblems) return;
    unknown_.push_back({document_.file,
                        "/" + pointer_token(key),
                        "a key of a measurement",
                        in_quotes(key),
                        did_you_mean(key, kKeys)});
  }
}

Measurement LineReader::read() {
  if (!document_.root.is_object()) {
    throw InputError({document_.file, "", "a measurement object", described(document_.root), ""});
  }
  problems_ = duplicate_key_problems(document_);
  Measurement result;
  result.id = text("id", true);
  result.source = text("source", true);
  result.tier = text("tier", false);
  result.group = text("group", false);
  result.notes = text("notes", false);
  result.rank = rank(result.source);
  result.scenario = scenario();
  result.parts =
      parse_component_timings(find("collectives"), find("kernels"), document_.file, problems_);
  result.measured = measured(!result.parts.empty());
  result.uncertainty = uncertainty();
  report_unknown();
  if (!problems_.empty()) {
    // A misspelt key is usually why another one is missing.
    problems_.insert(problems_.end(), unknown_.begin(), unknown_.end());
    throw InputError(std::move(problems_));
  }
  ignored_.insert(ignored_.end(), unknown_.begin(), unknown_.end());
  return result;
}

Json number_json(double value) {
  return is_whole(value) ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

}  // namespace

bool is_possible(Metric metric, double value) { return is_possible(row(metric).kind, value); }

std::string_view name(Metric metric) { return row(metric).key; }

std::optional<Metric> find_metric(std::string_view key) {
  for (const MetricRow& metric : kMetrics) {
    if (metric.key == key) return metric.metric;
  }
  return std::nullopt;
}

bool Measured::empty() const {
  return std::none_of(
      values_.begin(), values_.end(), [](const auto& value) { return value.has_value(); });
}

Bytes Measured::bytes(Metric metric) const {
  ZP_CHECK(row(metric).kind == MetricKind::bytes && has(metric), "no bytes were measured");
  return Bytes::nearest(*at(metric));
}

Seconds Measured::step() const {
  ZP_CHECK(has(Metric::step_seconds), "no step was measured");
  return Seconds::of(*at(Metric::step_seconds));
}

bool Measured::fits() const {
  ZP_CHECK(has(Metric::fits), "no verdict was measured");
  return *at(Metric::fits) != 0.0;
}

std::int64_t Measured::max_micro_batch_size() const {
  ZP_CHECK(has(Metric::max_micro_batch_size), "no micro-batch size was measured");
  return static_cast<std::int64_t>(*at(Metric::max_micro_batch_size));
}

std::optional<double> Measured::number(Metric metric) const {
  return row(metric).kind == MetricKind::flag ? std::nullopt : at(metric);
}

void Measured::set(Metric metric, double value) {
  values_[static_cast<std::size_t>(metric)] = value;
}

std::optional<double> Uncertainty::of(Metric metric) const {
  const auto found = by_metric.find(metric);
  return found == by_metric.end() ? all : std::optional(found->second);
}

Measurement parse_measurement(const JsonDocument& document, std::vector<Diagnostic>& ignored) {
  return LineReader(document, ignored).read();
}

MeasurementFile parse_measurements(std::string_view lines, const std::string& file) {
  MeasurementFile result;
  result.file = file;
  result.bad_lines = read_json_lines(lines, file, [&](const JsonDocument& document, int line) {
    std::vector<Diagnostic> ignored;
    Measurement measurement = parse_measurement(document, ignored);
    measurement.line = line;
    // A watched run has a line after its third step and one at its end, which knows more.
    std::erase_if(result.measurements, [&](const Measurement& earlier) {
      return measurement.source == "watched" && earlier.source == "watched" &&
             earlier.id == measurement.id;
    });
    result.measurements.push_back(std::move(measurement));
    for (Diagnostic& key : ignored) {
      key.pointer = pointer_in_line(line, key.pointer);
      result.ignored.push_back(std::move(key));
    }
  });
  return result;
}

MeasurementFile read_measurements(const std::string& path) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 30;
  MeasurementFile result = parse_measurements(read_text_file(path, kLargest), path);
  if (result.measurements.empty() && result.bad_lines.empty()) {
    throw InputError({path, "", "lines with one measurement each", "an empty file", ""});
  }
  return result;
}

Json said_document(const Scenario& scenario) {
  Json document = Json::object();
  for (const ScenarioKeyInfo& key : kScenarioKeys) {
    if (const ExplicitValue* said = scenario.find(key.key))
      json_at(document, key.pointer) = said->value;
  }
  return document;
}

Json to_json(const Measurement& measurement) {
  Json line = Json::object({{"id", measurement.id}, {"source", measurement.source}});
  if (!measurement.tier.empty()) line["tier"] = measurement.tier;
  if (!measurement.group.empty()) line["group"] = measurement.group;
  if (measurement.rank) line["rank"] = *measurement.rank;
  line["scenario"] = said_document(measurement.scenario);
  Json measured = Json::object();
  for (const MetricRow& metric : kMetrics) {
    if (!measurement.measured.has(metric.metric)) continue;
    measured[metric.key] = metric.kind == MetricKind::flag
                               ? Json(measurement.measured.fits())
                               : number_json(*measurement.measured.number(metric.metric));
  }
  line["measured"] = std::move(measured);
  if (!measurement.notes.empty()) line["notes"] = measurement.notes;
  const Uncertainty& uncertainty = measurement.uncertainty;
  if (uncertainty.all) line["uncertainty"] = *uncertainty.all;
  for (const auto& [metric, deviation] : uncertainty.by_metric) {
    line["uncertainty"][name(metric)] = deviation;
  }
  if (!uncertainty.text.empty()) line["uncertainty"] = uncertainty.text;
  for (const CollectiveTiming& timing : measurement.parts.collectives) {
    if (line.find("collectives") == nullptr) line["collectives"] = Json::array();
    line["collectives"].push_back(to_json(timing));
  }
  for (const KernelTiming& timing : measurement.parts.kernels) {
    if (line.find("kernels") == nullptr) line["kernels"] = Json::array();
    line["kernels"].push_back(to_json(timing));
  }
  return line;
}

namespace {

// A document with the members of every object in the order of their names: equal for equal values.
Json in_order(const Json& value) {
  if (value.is_array()) {
    Json result = Json::array();
    for (const Json& item : value.items()) result.push_back(in_order(item));
    return result;
  }
  if (!value.is_object()) return value;
  std::vector<Json::Member> members = value.members();
  std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
    return a.first < b.first;
  });
  Json result = Json::object();
  for (const auto& [key, member] : members) result[key] = in_order(member);
  return result;
}

}  // namespace

std::string identity_of(const Measurement& measurement) {
  Json document = said_document(measurement.scenario);
  document.erase("id");
  const std::string rank = measurement.rank ? " rank " + std::to_string(*measurement.rank) : "";
  return in_order(document).dump() + rank;
}

bool is_peak(Metric metric) {
  return metric == Metric::peak_allocated_bytes || metric == Metric::peak_reserved_bytes ||
         metric == Metric::peak_total_bytes;
}

bool is_memory(Metric metric) {
  return is_peak(metric) || metric == Metric::static_allocated_bytes ||
         metric == Metric::host_peak_bytes;
}

bool is_time(Metric metric) {
  return metric == Metric::step_seconds || metric == Metric::tokens_per_second_per_gpu ||
         metric == Metric::samples_per_second;
}

}  // namespace zeroplan::evidence
