// Measurement lines on their way into a fit: each row that `calibrate` would fit is a number of
// seconds or bytes with a spread, and can be predicted. The fit itself is too long for a fuzzer.
#include <cmath>

#include "evidence/calibrate/observation.hpp"
#include "evidence/calibrate/observe.hpp"
#include "tests/fuzz/fuzz_support.hpp"
#include "tests/fuzz/small_plans.hpp"

namespace fuzz = zeroplan::fuzz;

namespace {

using zeroplan::evidence::Measurement;

bool is_bounded(const Measurement& line) {
  if (fuzz::opens_files(line.scenario)) return false;
  bool small = true;  // what is refused costs nothing: calibrate has to say why
  fuzz::reads([&] { small = fuzz::is_small(resolve(line.scenario)); });
  return small;
}

bool is_positive(double value) { return std::isfinite(value) && value > 0.0; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostLines = 4;
  zeroplan::evidence::MeasurementFile file =
      zeroplan::evidence::parse_measurements(fuzz::text_of(data, size), "measurements.jsonl");
  std::erase_if(file.measurements, [](const Measurement& line) { return !is_bounded(line); });
  if (file.measurements.size() > kMostLines) file.measurements.resize(kMostLines);
  const zeroplan::evidence::Observations observations = zeroplan::evidence::observe({file}, "", 1);
  for (const zeroplan::evidence::Observation& row : observations.rows) {
    fuzz::require(is_positive(row.measured), row.what + ": nothing was measured");
    fuzz::require(is_positive(row.sd), row.what + ": a row without a spread");
    fuzz::require(is_positive(row.exact(row.table)), row.what + ": no prediction");
    fuzz::require(is_positive(row.quick(row.table)), row.what + ": no analytic prediction");
  }
  for (const zeroplan::evidence::UnusedMeasurement& unused : observations.unused) {
    fuzz::require(!unused.reason.empty(), "a line is left out without a reason");
  }
  return 0;
}
