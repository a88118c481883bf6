// Rehearsals of TRL's trainers (DPO, KTO, GRPO) with their reference, beside the simulation of the
// same scenarios. Nothing is fitted.
#include <algorithm>
#include <string>
#include <vector>

#include "evidence/measurement.hpp"
#include "tests/catch.hpp"
#include "tests/evidence/rehearsed_run.hpp"

namespace zeroplan {
namespace {

constexpr const char* kLines = ZEROPLAN_SOURCE_DIR "/tests/reference/rehearsal/matrix/trl.jsonl";

TEST_CASE("memory of rehearsed trainers of TRL with their reference is predicted") {
  std::vector<double> allocated, reserved;
  for (const Measurement& run : read_measurements(kLines).measurements) {
    CAPTURE(run.id);
    REQUIRE(run.measured.has(Metric::peak_allocated_bytes));
    const StepResult result = simulate_measured(run);
    allocated.push_back(deviation(run, Metric::peak_allocated_bytes, result.gpu.peak_allocated));
    reserved.push_back(deviation(run, Metric::peak_reserved_bytes, result.gpu.peak_reserved));
    CHECK(deviation(run, Metric::static_allocated_bytes, result.gpu.static_allocated) < 0.02);
    CHECK(allocated.back() < 0.05);
  }
  REQUIRE(allocated.size() > 20);
  std::sort(allocated.begin(), allocated.end());
  std::sort(reserved.begin(), reserved.end());
  CHECK(quantile(allocated, 0.5) < 0.002);
  CHECK(quantile(allocated, 0.8) < 0.01);
  CHECK(quantile(reserved, 0.5) < 0.03);
}

// PPO, of two rollouts, the second beside the optimizer's states. What is allocated between steps
// is measured while the loop's variables hold the last outputs, and predicted without them.
TEST_CASE("memory of rehearsed PPO with its critic, reference and reward model is predicted") {
  std::vector<double> allocated, reserved;
  for (const Measurement& run :
       read_measurements(ZEROPLAN_SOURCE_DIR "/tests/reference/rehearsal/matrix/ppo.jsonl")
           .measurements) {
    CAPTURE(run.id);
    const StepResult result = simulate_measured(run);
    allocated.push_back(deviation(run, Metric::peak_allocated_bytes, result.gpu.peak_allocated));
    reserved.push_back(deviation(run, Metric::peak_reserved_bytes, result.gpu.peak_reserved));
    CHECK(result.gpu.static_allocated < run.measured.bytes(Metric::static_allocated_bytes));
    CHECK(allocated.back() < 0.02);
  }
  REQUIRE(allocated.size() > 10);
  std::sort(allocated.begin(), allocated.end());
  std::sort(reserved.begin(), reserved.end());
  CHECK(quantile(allocated, 0.5) < 0.005);
  CHECK(quantile(allocated, 0.9) < 0.01);
  CHECK(quantile(reserved, 0.5) < 0.015);
  CHECK(quantile(reserved, 0.9) < 0.05);
}

}  // namespace
}  // namespace zeroplan
