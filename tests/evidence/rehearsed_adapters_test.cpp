// Rehearsals of adapters as the release of peft makes them (0.10.0, 0.15.1, 0.21.2) and of QLoRA
// under DeepSpeed beside the simulation of the same scenarios
// (tests/reference/rehearsal/adapters_lines.py, four_bit_lines.py). Nothing is fitted.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "evidence/measurement.hpp"
#include "tests/catch.hpp"
#include "tests/evidence/rehearsed_run.hpp"

namespace zeroplan {
namespace {

// Deviations of the allocated peaks, sorted.
std::vector<double> deviations(const std::string& name, double most_between_steps) {
  const MeasurementFile file =
      read_measurements(ZEROPLAN_SOURCE_DIR "/tests/reference/rehearsal/matrix/" + name + ".jsonl");
  std::vector<double> allocated;
  for (const Measurement& run : file.measurements) {
    CAPTURE(run.id);
    const StepResult result = simulate_measured(run);
    allocated.push_back(deviation(run, Metric::peak_allocated_bytes, result.gpu.peak_allocated));
    CHECK(deviation(run, Metric::static_allocated_bytes, result.gpu.static_allocated) <
          most_between_steps);
  }
  std::sort(allocated.begin(), allocated.end());
  return allocated;
}

TEST_CASE("memory of rehearsed adapters in peft's own dtype is predicted under every engine") {
  const std::vector<double> allocated = deviations("adapters", 0.025);
  REQUIRE(allocated.size() >= 60);
  CHECK(quantile(allocated, 0.5) < 0.0015);
  CHECK(quantile(allocated, 0.95) < 0.007);
}

TEST_CASE("memory of rehearsed QLoRA is predicted with and without DeepSpeed") {
  const std::vector<double> allocated = deviations("four_bits", 0.007);
  REQUIRE(allocated.size() >= 6);
  CHECK(quantile(allocated, 1.0) < 0.005);
}

}  // namespace
}  // namespace zeroplan
