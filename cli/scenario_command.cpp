// zeroplan scenario: the resolved scenario document.
#include <ostream>

#include "cli/commands.hpp"
#include "cli/language/translation.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan::cli {

int run_scenario(const Arguments& arguments, Streams streams) {
  const Scenario scenario = scenario_of(arguments);
  const Plan plan = resolve(scenario);
  const Translation words(arguments.language);
  for (const Phrase& sentence : plan.assumptions) {
    streams.log << words.text("assumed: " + sentence + "\n");
  }
  for (const Phrase& sentence : plan.warnings) {
    streams.log << words.text("warning: " + sentence + "\n");
  }
  streams.out << scenario_document(plan, scenario).dump(2) << "\n";
  return kDone;
}

}  // namespace zeroplan::cli
