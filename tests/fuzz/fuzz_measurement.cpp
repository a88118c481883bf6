// Files of measurements: what is read is written and read back the same; bad lines are collected.
#include "evidence/measurement.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeroplan::Measurement;
  using zeroplan::MeasurementFile;
  const MeasurementFile file =
      zeroplan::parse_measurements(fuzz::text_of(data, size), "measurements.jsonl");
  for (const auto& problem : file.bad_lines) fuzz::check_message(problem);
  for (const auto& problem : file.ignored) fuzz::check_message(problem);
  std::string printed;
  for (const Measurement& row : file.measurements) printed += to_json(row).dump() + "\n";
  const MeasurementFile again = zeroplan::parse_measurements(printed, "printed.jsonl");
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
