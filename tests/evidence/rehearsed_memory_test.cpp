// Rehearsals of the matrix (docs/rehearsal.md) that showed a cause, beside the simulation of the
// same scenarios; all together are in rehearsed_accuracy_test.cpp.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "evidence/measurement.hpp"
#include "tests/catch.hpp"
#include "tests/evidence/rehearsed_run.hpp"

namespace zeroplan {
namespace {

constexpr const char* kMatrix = ZEROPLAN_SOURCE_DIR "/tests/reference/rehearsal/matrix";

// Of the sizes of deviations: the middle one, and the one that 95 % do not exceed.
struct Spread {
  double median = 0.0, high = 0.0;
};

Spread spread_of(std::vector<double> deviations) {
  REQUIRE(!deviations.empty());
  std::sort(deviations.begin(), deviations.end());
  const auto at = [&](double share) {
    return deviations[static_cast<std::size_t>(share * static_cast<double>(deviations.size() - 1))];
  };
  return {at(0.5), at(0.95)};
}

struct Deviations {
  std::vector<double> allocated, reserved, held;
};

void add(const Measurement& run, const StepResult& result, Deviations& deviations) {
  const auto size = [&](Bytes predicted, Metric metric) {
    const auto bytes = static_cast<double>(run.measured.bytes(metric).count());
    return std::abs(static_cast<double>(predicted.count()) / bytes - 1.0);
  };
  deviations.allocated.push_back(size(result.gpu.peak_allocated, Metric::peak_allocated_bytes));
  deviations.reserved.push_back(std::abs(from_nearer_end(run, result.gpu.peak_reserved)));
  deviations.held.push_back(size(result.gpu.static_allocated, Metric::static_allocated_bytes));
}

// Until 2026-11-25 allocated memory was up to 9 % too low there: the reduced bucket was taken to go
// with the first partition that is copied, and neither the partitions that come back for their norm
// nor the inputs of gathers were on the GPU.
TEST_CASE("memory of stage 3 with offload is that of the rehearsals") {
  Deviations deviations;
  for (const char* file : {"torch-2.2.jsonl", "torch-2.6.jsonl", "torch-2.11.jsonl"}) {
    for (const Measurement& run :
         read_measurements(std::string(kMatrix) + "/" + file).measurements) {
      if (run.id.find("-z3-off") == std::string::npos) continue;
      CAPTURE(run.id);
      add(run, simulate_measured(run), deviations);
      CHECK(deviations.allocated.back() < 0.005);
    }
  }
  REQUIRE(deviations.allocated.size() > 30);
  const Spread reserved = spread_of(deviations.reserved);
  CHECK(reserved.median < 0.005);
  CHECK(reserved.high < 0.07);
}

// Until 2026-11-26 the gathered weights of a unit went before its gradients were joined: with many
// words, whose embedding and head are one unit, up to 11 % too low.
TEST_CASE("FSDP1 joins a unit's gradients while its weights are gathered") {
  const struct {
    const char *file, *id;
  } lines[] = {{"drawn.jsonl", "drawn-1-mistral-7b-v0.1-fsdp-w4-s1024-m1-ckn-t211-s1000-m1-g2"},
               {"torch-2.6.jsonl", "pythia-410m-fsdp-w4-s1024-m1-ckn-t26"}};
  for (const auto& line : lines) {
    CAPTURE(line.id);
    int seen = 0;
    for (const Measurement& run :
         read_measurements(std::string(kMatrix) + "/" + line.file).measurements) {
      if (run.id != line.id) continue;
      ++seen;
      const StepResult result = simulate_measured(run);
      CHECK(deviation(run, Metric::peak_allocated_bytes, result.gpu.peak_allocated) < 0.001);
    }
    CHECK(seen == 1);
  }
}

}  // namespace
}  // namespace zeroplan
