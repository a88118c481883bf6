// Files of measurements: what is read is written and read back the same; bad lines are collected.
#include "evidence/measurement.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeroplan::evidence::Measurement;
  using zeroplan::evidence::MeasurementFile;
  const zeroplan::evidence::MeasurementFile file =
      zeroplan::evidence::parse_measurements(fuzz::text_of(data, size), "measurements.jsonl");
  for (const auto& problem : file.bad_lines) fuzz::check_message(problem);
  for (const auto& problem : file.ignored) fuzz::check_message(problem);
  std::string printed;
  for (const zeroplan::evidence::Measurement& row : file.measurements)
    printed += to_json(row).dump() + "\n";
  const zeroplan::evidence::MeasurementFile again =
      zeroplan::evidence::parse_measurements(printed, "printed.jsonl");
  fuzz::require(again.bad_lines.empty(), "what was written is refused");
  fuzz::require(again.ignored.empty(), "what was written has unknown keys");
  fuzz::require(again.measurements.size() == file.measurements.size(), "rows were lost");
  for (std::size_t i = 0; i < file.measurements.size(); ++i) {
    fuzz::require(again.measurements[i].measured == file.measurements[i].measured &&
                      again.measurements[i].uncertainty == file.measurements[i].uncertainty,
                  "a row reads differently");
  }
  return 0;
}
