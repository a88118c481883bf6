// Rehearsals of the text models whose layers are of several kinds (Qwen3.5, dense and with experts,
// Qwen3-Next, Llama 4) beside the simulation of the same scenarios: torch 2.11, transformers 5.17,
// DeepSpeed 0.19.6 (tests/reference/rehearsal/families_hybrid_lines.py). Nothing is fitted.
#include <algorithm>
#include <cmath>
#include <vector>

#include "evidence/measurement.hpp"
#include "tests/catch.hpp"
#include "tests/evidence/rehearsed_run.hpp"

namespace zeroplan {
namespace {

TEST_CASE("memory of rehearsed Qwen3.5, Qwen3-Next and Llama 4 is predicted") {
  const MeasurementFile file = read_measurements(
      ZEROPLAN_SOURCE_DIR "/tests/reference/rehearsal/matrix/families_hybrid.jsonl");
  REQUIRE(file.measurements.size() >= 22);
  std::vector<double> allocated;
  for (const Measurement& run : file.measurements) {
    CAPTURE(run.id);
    const StepResult result = simulate_measured(run);
    allocated.push_back(deviation(run, Metric::peak_allocated_bytes, result.gpu.peak_allocated));
    CHECK(deviation(run, Metric::static_allocated_bytes, result.gpu.static_allocated) < 0.004);
  }
  std::sort(allocated.begin(), allocated.end());
  CHECK(quantile(allocated, 0.5) < 0.0005);
  CHECK(quantile(allocated, 0.9) < 0.005);
}

}  // namespace
}  // namespace zeroplan
