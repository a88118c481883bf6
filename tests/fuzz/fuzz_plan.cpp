// Scenarios resolved to plans: model, cluster and ds_config inline or by name, never by path.
#include <filesystem>

#include "model/plan/plan.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

namespace {

using zeroplan::Scenario;
using zeroplan::ScenarioKey;

// Whether resolving would open a file: a fuzzer must not read whatever it finds.
bool opens_files(const Scenario& scenario) {
  for (const ScenarioKey key : {ScenarioKey::profile, ScenarioKey::ds_config}) {
    const zeroplan::Said* said = scenario.find(key);
    if (said != nullptr && said->value.is_string()) return true;
  }
  for (const ScenarioKey key : {ScenarioKey::model, ScenarioKey::cluster}) {
    const zeroplan::Said* said = scenario.find(key);
    if (said == nullptr || !said->value.is_string()) continue;
    const std::string& text = said->value.as_string();
    std::error_code error;
    if (text.find_first_of("/:.") != std::string::npos || std::filesystem::exists(text, error)) {
      return true;
    }
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::reads([&] {
    const Scenario scenario =
        parse_scenario(zeroplan::parse_json(fuzz::text_of(data, size), "scenario.json"));
    if (opens_files(scenario)) return;
    const zeroplan::Plan plan = resolve(scenario);
    fuzz::require(plan.degrees.data >= 1, "a plan without a data-parallel rank");
    fuzz::require(plan.model->parameters.size() == plan.engine_parameters.size(),
                  "parameters were lost on the way to the engine");
  });
  return 0;
}
