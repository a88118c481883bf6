// Rehearsals of the matrix (docs/rehearsal.md) that showed a cause, beside the simulation of the
// same scenarios; all together are in rehearsed_accuracy_test.cpp.
#include <algorithm>
#include <cmath>
#include <vector>

#include "evidence/measurement.hpp"
#include "tests/catch.hpp"
#include "tests/evidence/rehearsed_run.hpp"

namespace zeroplan {
namespace {

constexpr const char* kMatrix = ZEROPLAN_SOURCE_DIR "/tests/reference/rehearsal/matrix";

// Until 2026-11-25 allocated memory was up to 9 % too low there: the reduced bucket was taken to go
// with the first partition that is copied, and neither the partitions that come back for their norm
// nor the inputs of gathers were on the GPU.
TEST_CASE("memory of stage 3 with offload is that of the rehearsals") {
  std::vector<double> reserved;
  for (const char* file : {"torch-2.2.jsonl", "torch-2.6.jsonl", "torch-2.11.jsonl"}) {
    for (const Measurement& run :
         read_measurements(std::string(kMatrix) + "/" + file).measurements) {
      if (run.id.find("-z3-off") == std::string::npos) continue;
      CAPTURE(run.id);
      const GpuMemory gpu = simulate_measured(run).gpu;
      CHECK(deviation(run, Metric::peak_allocated_bytes, gpu.peak_allocated) < 0.005);
      reserved.push_back(std::abs(from_nearer_end(run, gpu.peak_reserved)));
    }
  }
  REQUIRE(reserved.size() > 30);
  std::sort(reserved.begin(), reserved.end());
  CHECK(quantile(reserved, 0.5) < 0.005);
  CHECK(quantile(reserved, 0.95) < 0.07);
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
