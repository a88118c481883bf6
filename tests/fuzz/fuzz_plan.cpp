// Scenarios resolved to plans: model, cluster and ds_config inline or by name, never by path.
#include "model/plan/scenario_reader.hpp"
#include "tests/fuzz/fuzz_support.hpp"
#include "tests/fuzz/small_plans.hpp"

namespace fuzz = zeroplan::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::reads([&] {
    const zeroplan::Scenario scenario =
        parse_scenario(zeroplan::parse_json(fuzz::text_of(data, size), "scenario.json"));
    if (fuzz::opens_files(scenario)) return;
    const zeroplan::Plan plan = resolve(scenario);
    fuzz::require(plan.degrees.data >= 1, "a plan without a data-parallel rank");
    fuzz::require(plan.model->parameters.size() == plan.engine_parameters.size(),
                  "parameters were lost on the way to the engine");
  });
  return 0;
}
