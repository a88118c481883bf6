#include "evidence/calibrate/observed_rows.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace zeroplan::evidence {
namespace {

// Spread of a row around a model without faults: clocks, data, what no key says. Assumed; the
// robust loss takes care of worse rows, and the report says how large residuals are in truth.
constexpr double kRowSpread = 0.05;
// No clock and no second run is better, whatever a line states: a row without any spread would
// outweigh all others.
constexpr double kLeastSpread = 1e-3;
constexpr double kTierB = 0.05;  // added to it as squares: a knob missing, or read off a chart
constexpr double kTierC = 0.15;

// "https://github.com/owner/name/issues/1 (table 2)" -> "owner/name": files of one repository come
// from the same machines and hands.
std::string origin_of(const std::string& source) {
  std::string word = source.substr(0, source.find(' '));
  constexpr std::string_view kHost = "https://github.com/";
  if (word.starts_with(kHost)) word.erase(0, kHost.size());
  const std::size_t owner = word.find('/');
  return owner == std::string::npos ? word : word.substr(0, word.find('/', owner + 1));
}

}  // namespace

Observation header(const MeasurementFile& file, const Measurement& line, const std::string& gpu) {
  Observation row;
  row.id = line.id;
  row.file = file.file;
  row.source = line.source;
  row.origin = origin_of(line.source);
  row.gpu = gpu;
  row.table = Coefficients(gpu);
  return row;
}

bool is_number_to_fit(double measured, double predicted) {
  return std::isfinite(measured) && measured > 0.0 && std::isfinite(predicted / measured);
}

double spread_of(const Measurement& measurement, Metric metric) {
  const double stated = measurement.uncertainty.of(metric).value_or(kRowSpread);
  double variance = std::pow(std::max(stated, kLeastSpread), 2.0);
  if (measurement.tier == "B") variance += kTierB * kTierB;
  if (measurement.tier == "C") variance += kTierC * kTierC;
  return std::sqrt(variance);
}

double median_of(const std::vector<const Measurement*>& lines, Metric metric) {
  std::vector<double> values;
  for (const Measurement* each : lines) {
    if (const auto value = each->measured.number(metric)) values.push_back(*value);
  }
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

void describe(const Plan& plan, Observation& row) {
  row.parameters = static_cast<double>(count_parameters(*plan.whole_model).total.count());
  row.sequence_length = static_cast<double>(plan.workload.sequence_length);
  row.tokens_per_micro_batch =
      row.sequence_length * static_cast<double>(plan.workload.micro_batch_size);
  row.gpus = static_cast<double>(plan.degrees.world);
}

Scenario without_profile(const Scenario& scenario) {
  Scenario bare = scenario;
  bare.unset(ScenarioKey::profile);
  return bare;
}

}  // namespace zeroplan::evidence
