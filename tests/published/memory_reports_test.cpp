// Memory of whole runs as users reported it: what nvidia-smi showed, which sequence lengths ran,
// how much host memory did and did not do. memory_reports.json names the source of each row.
#include "model/plan/scenario_reader.hpp"
#include "model/plan/software_sets.hpp"
#include "model/predict/predict.hpp"
#include "tests/catch.hpp"
#include "tests/published/published_data.hpp"

using namespace zeroplan;
using namespace zeroplan::testing;

namespace {

double of(Bytes bytes) { return static_cast<double>(bytes.count()); }

}  // namespace

TEST_CASE("reported runs take the memory that was reported, and fit where they ran") {
  const Json table = published("memory_reports.json");
  for (const Json& row : table.find("rows")->items()) {
    INFO(text(row, "what"));
    const StepResult result = predict(resolve(
        with_reported_software(parse_scenario(*row.find("scenario"), "memory_reports.json"))));
    INFO("GPU " << of(result.gpu.peak_total) << ", host " << of(result.host.peak)
                << ", probability " << result.fit_probability);
    bool held = false;
    if (row.find("gpu_total_bytes") != nullptr) {
      CHECK(of(result.gpu.peak_total) ==
            Approx(number(row, "gpu_total_bytes")).epsilon(number(table, "gpu_tolerance")));
      held = true;
    }
    if (const Json* fits = row.find("fits")) {
      CHECK((result.fit_probability > 0.5) == fits->as_boolean());
      held = true;
    }
    if (const Json* sure = row.find("sure")) {
      CHECK(result.fits == sure->as_boolean());
      held = true;
    }
    if (row.find("host_more_than") != nullptr) {
      CHECK(of(result.host.peak) > number(row, "host_more_than"));
      held = true;
    }
    if (row.find("host_at_most") != nullptr) {
      CHECK(of(result.host.peak) <= number(row, "host_at_most"));
    }
    CHECK(held);  // a row without a value would hold nothing
  }
}
