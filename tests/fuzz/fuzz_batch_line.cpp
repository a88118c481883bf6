// One line of `simulate --batch`: a scenario, resolved and played where its plan is small. What the
// answer says is finite, and the line is JSON.
#include <cmath>

#include "model/plan/scenario_reader.hpp"
#include "model/predict/io_step_result.hpp"
#include "simulator/simulate.hpp"
#include "tests/fuzz/fuzz_support.hpp"
#include "tests/fuzz/small_plans.hpp"

namespace fuzz = zeroplan::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::reads([&] {
    const zeroplan::JsonDocument document =
        zeroplan::parse_json(fuzz::text_of(data, size), "batch.jsonl");
    const zeroplan::Scenario scenario = zeroplan::parse_scenario(document.root, "batch.jsonl");
    if (fuzz::opens_files(scenario)) return;
    const zeroplan::Plan plan = resolve(scenario);
    if (!fuzz::is_small(plan)) return;
    zeroplan::simulator::SimulateOptions options;
    options.verdict_alone = true;
    options.other_networks = false;
    const zeroplan::StepResult result = simulate(plan, options);
    const double seconds = result.step.total.seconds();
    fuzz::require(std::isfinite(seconds) && seconds >= 0.0, "a step without a time");
    fuzz::require(result.host.peak >= zeroplan::Bytes::zero(), "less host memory than nothing");
    zeroplan::parse_json(to_json(result).dump(), "answer.json");
  });
  return 0;
}
