// Mixtures of experts as transformers 5 trains them: rehearsals of the real program (torch 2.11,
// transformers 5.17, DeepSpeed 0.19.6, docs/rehearsal.md) beside the simulation of the same
// scenario.
#include <cmath>

#include "evidence/measurement.hpp"
#include "tests/catch.hpp"
#include "tests/evidence/rehearsed_run.hpp"

namespace zeroplan {
namespace {

double error_of(Bytes predicted, const Measured& measured, Metric metric) {
  const auto bytes = static_cast<double>(measured.bytes(metric).count());
  return std::abs(static_cast<double>(predicted.count()) / bytes - 1.0);
}

TEST_CASE("allocated memory of fused experts is what the rehearsed programs allocated") {
  const MeasurementFile file =
      read_measurements(ZEROPLAN_SOURCE_DIR "/tests/evidence/data/rehearsed_experts.jsonl");
  REQUIRE(file.measurements.size() == 10);
  for (const Measurement& run : file.measurements) {
    CAPTURE(run.id);
    const StepResult result = simulate_measured(run);
    CHECK(error_of(result.gpu.peak_allocated, run.measured, Metric::peak_allocated_bytes) < 5e-4);
    CHECK(error_of(result.gpu.static_allocated, run.measured, Metric::static_allocated_bytes) <
          5e-4);
  }
}

// Families with experts that came with transformers 5, by scripts/rehearse_matrix.py: every stage,
// with and without checkpointing, odd sequences and vocabularies.
TEST_CASE("allocated memory of the sparse families is what the rehearsed programs allocated") {
  const MeasurementFile file = read_measurements(
      ZEROPLAN_SOURCE_DIR "/tests/reference/rehearsal/matrix/families_sparse.jsonl");
  REQUIRE(file.measurements.size() >= 6);
  for (const Measurement& run : file.measurements) {
    CAPTURE(run.id);
    const StepResult result = simulate_measured(run);
    CHECK(error_of(result.gpu.peak_allocated, run.measured, Metric::peak_allocated_bytes) < 1e-3);
    CHECK(error_of(result.gpu.static_allocated, run.measured, Metric::static_allocated_bytes) <
          1.5e-3);
  }
}

}  // namespace
}  // namespace zeroplan
