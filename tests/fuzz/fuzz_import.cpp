// Logs, documents and traces: whatever is imported, each measurement of it is written and read as
// the same one.
#include "evidence/importers/import.hpp"
#include "evidence/importers/run_summary.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::reads([&] {
    const zeroplan::evidence::ImportedFile file =
        zeroplan::evidence::import_bytes(std::string(fuzz::text_of(data, size)), "fuzz.log", {});
    fuzz::require(file.skipped <= file.lines, "more lines skipped than there are");
    fuzz::require(!file.runs.empty(), "neither a run nor an error");
    for (const zeroplan::evidence::ImportedRun& run : file.runs) {
      for (const zeroplan::Diagnostic& problem : run.findings.bad_lines()) {
        fuzz::check_message(problem);
      }
      const auto measurement = zeroplan::evidence::measurement_of(run.findings, run.id, "fuzz");
      if (!measurement) continue;
      const std::string line = to_json(*measurement).dump();
      const auto again = zeroplan::evidence::parse_measurements(line + "\n", "again.jsonl");
      for (const zeroplan::Diagnostic& problem : again.bad_lines) {
        fuzz::defect("a measurement that cannot be read: " + to_string(problem) + "\n" + line);
      }
      fuzz::require(again.measurements.size() == 1, "a measurement got lost");
      fuzz::require(to_json(again.measurements.front()).dump() == line, "it reads differently");
    }
  });
  return 0;
}
