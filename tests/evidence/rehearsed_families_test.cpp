// Rehearsals of the families of hf_decoder.cpp (Gemma 2 and 3, SmolLM3, OLMo 2, Granite, Starcoder
// 2, GLM-4, Command R) beside the simulation of the same scenarios, in three sets of versions.
//
// Nothing is fitted, and most lines agree to some kilobytes.
#include <cmath>
#include <vector>

#include "evidence/measurement.hpp"
#include "tests/catch.hpp"
#include "tests/evidence/rehearsed_run.hpp"

namespace zeroplan {
namespace {

constexpr const char* kLines =
    ZEROPLAN_SOURCE_DIR "/tests/reference/rehearsal/matrix/families_dense.jsonl";

double share_within(const std::vector<double>& deviations, double bound) {
  std::size_t within = 0;
  for (const double deviation : deviations) within += deviation <= bound ? 1U : 0U;
  return static_cast<double>(within) / static_cast<double>(deviations.size());
}

TEST_CASE("memory of rehearsed Gemma, OLMo, Granite, Starcoder, GLM and Command R is predicted") {
  std::vector<double> allocated, held;
  for (const Measurement& run : read_measurements(kLines).measurements) {
    CAPTURE(run.id);
    REQUIRE(run.measured.has(Metric::peak_allocated_bytes));
    const StepResult result = simulate_measured(run);
    allocated.push_back(deviation(run, Metric::peak_allocated_bytes, result.gpu.peak_allocated));
    held.push_back(deviation(run, Metric::static_allocated_bytes, result.gpu.static_allocated));
    CHECK(held.back() < 0.005);
  }
  REQUIRE(allocated.size() > 160);
  CHECK(share_within(allocated, 0.0001) > 0.5);
  CHECK(share_within(allocated, 0.001) > 0.8);
  CHECK(share_within(allocated, 0.01) > 0.97);
}

}  // namespace
}  // namespace zeroplan
