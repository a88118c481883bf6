// Scenario documents and flags: what was said is said again.
#include "evidence/measurement.hpp"
#include "model/plan/scenario.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeroplan::Json;
  using zeroplan::Scenario;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::reads([&] {
    const Scenario scenario = parse_scenario(zeroplan::parse_json(text, "scenario.json"));
    const Json said = zeroplan::evidence::said_document(scenario);
    const std::string printed = said.dump();
    const Scenario again = parse_scenario(zeroplan::parse_json(printed, "printed.json"));
    fuzz::require(zeroplan::evidence::said_document(again) == said,
                  "what was said reads differently");
    fuzz::require(zeroplan::evidence::said_document(overlay(scenario, again)) == said,
                  "saying it twice changes it");
  });
  if (text.empty()) return 0;
  // The same bytes as a flag's text: the first one chooses the flag.
  const auto& key = zeroplan::kScenarioKeys[data[0] % zeroplan::kScenarioKeyCount];
  fuzz::reads([&] { parse_flag(key, text.substr(1)); });
  return 0;
}
