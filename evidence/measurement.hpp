// Measurements: what somebody measured of a scenario (docs/contract.md section 6). Read by
// `validate` and `calibrate`, written by `import`.
//
// One JSON object a line: id, source, tier, group, rank, scenario, measured, notes, uncertainty,
// and collectives and kernels, the timings of parts (component_timings.hpp). A line that cannot be
// used is collected with its line and pointer, and the others go on (exit code 4); keys that nobody
// here knows are reported and ignored, because a file may carry its own.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "base/units.hpp"
#include "evidence/component_timings.hpp"
#include "model/plan/scenario.hpp"

namespace zeroplan::evidence {

enum class Metric {
  peak_allocated_bytes,
  peak_reserved_bytes,
  peak_total_bytes,
  static_allocated_bytes,
  host_peak_bytes,
  step_seconds,
  samples_per_second,  // of the whole job
  tokens_per_second_per_gpu,
  model_tflops_per_gpu,
  hardware_tflops_per_gpu,  // recomputation counted
  mfu,
  fits,
  max_micro_batch_size,
};
inline constexpr std::size_t kMetricCount =
    static_cast<std::size_t>(Metric::max_micro_batch_size) + 1;

std::string_view name(Metric metric);  // its key: "step_seconds"
std::optional<Metric> find_metric(std::string_view key);
// May a measurement say so? `value` in the metric's unit; what may not is refused when it is read.
bool is_possible(Metric metric, double value);

// What was measured, each in the unit its key names: bytes, seconds, 1/s, 10^12 flop/s, fractions.
class Measured {
 public:
  bool has(Metric metric) const { return at(metric).has_value(); }
  bool empty() const;

  // Preconditions: has() it, and the metric is of that kind.
  Bytes bytes(Metric metric) const;
  Seconds step() const;
  bool fits() const;
  std::int64_t max_micro_batch_size() const;

  // The number in the metric's own unit, for ratios of a prediction to it; nothing for `fits` and
  // for what was not measured.
  std::optional<double> number(Metric metric) const;

  // Precondition: as Measured's readers give it (a whole number of bytes, 0 or 1 for fits).
  void set(Metric metric, double value);

  friend bool operator==(const Measured&, const Measured&) = default;

 private:
  const std::optional<double>& at(Metric metric) const {
    return values_[static_cast<std::size_t>(metric)];
  }
  std::array<std::optional<double>, kMetricCount> values_;
};

// Relative standard deviations, where the source states them.
struct Uncertainty {
  std::optional<double> all;           // "uncertainty": 0.03
  std::map<Metric, double> by_metric;  // "uncertainty": {"step_seconds": 0.03}
  std::string text;                    // anything in words
  std::optional<double> of(Metric metric) const;
  friend bool operator==(const Uncertainty&, const Uncertainty&) = default;
};

struct Measurement {
  int line = 0;  // in its file
  std::string id;
  std::string source;
  std::string tier;   // "A": the configuration is fully known ... "C": in part; may be empty
  std::string group;  // rows of one model and place; may be empty
  std::string notes;
  // Whose memory was measured, of data-parallel ranks that differ; nothing: the one that needs the
  // most. A line of the source "rehearsal" that says nothing is of rank 0, as `zeroplan rehearse`.
  std::optional<int> rank;
  Scenario scenario;
  Measured measured;  // may be empty where there are parts
  Uncertainty uncertainty;
  ComponentTimings parts;
};

struct MeasurementFile {
  std::string file;
  std::vector<Measurement> measurements;
  std::vector<Diagnostic> bad_lines;  // lines that gave no measurement
  std::vector<Diagnostic> ignored;    // keys that were not understood, of lines that did
};

// One document. Throws InputError with all that is wrong; `ignored` gets the keys nobody knows.
Measurement parse_measurement(const JsonDocument& document, std::vector<Diagnostic>& ignored);

MeasurementFile parse_measurements(std::string_view lines, const std::string& file);
// Throws InputError where the file cannot be read or holds no line at all.
MeasurementFile read_measurements(const std::string& path);

// The line of a measurement, without its line break; parsing it gives the same measurement.
Json to_json(const Measurement& measurement);

// The scenario document with what was said and nothing else. Equal documents without their "id" are
// the same scenario: repeats.
Json said_document(const Scenario& scenario);
// Equal for repeats and for nothing else: the same scenario, and the same rank of it.
std::string identity_of(const Measurement& measurement);

// Is the metric scored, and as memory (peaks of the GPU, what it holds, the host) or time?
bool is_memory(Metric metric);
bool is_peak(Metric metric);  // the three of the accuracy gate
bool is_time(Metric metric);

}  // namespace zeroplan::evidence
