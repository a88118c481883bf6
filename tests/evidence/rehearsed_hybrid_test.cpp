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
    const auto deviation = [&](Bytes predicted, Metric metric) {
      const auto bytes = static_cast<double>(run.measured.bytes(metric).count());
      return std::abs(static_cast<double>(predicted.count()) / bytes - 1.0);
    };
    allocated.push_back(deviation(result.gpu.peak_allocated, Metric::peak_allocated_bytes));
    CHECK(deviation(result.gpu.static_allocated, Metric::static_allocated_bytes) < 0.004);
  }
  std::sort(allocated.begin(), allocated.end());
  const auto at = [&](double share) {
    return allocated[static_cast<std::size_t>(share * static_cast<double>(allocated.size() - 1))];
  };
  CHECK(at(0.5) < 0.0005);
  CHECK(at(0.9) < 0.005);
}

}  // namespace
}  // namespace zeroplan
