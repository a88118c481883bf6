// zeroplan simulate: one configuration in detail, or a file of scenarios.
#include <ostream>
#include <utility>
#include <vector>

#include "base/diagnostic.hpp"
#include "cli/checkpoint_text.hpp"
#include "cli/commands.hpp"
#include "cli/compare_versions.hpp"
#include "cli/simulate_batch.hpp"
#include "cli/simulate_text.hpp"
#include "cli/write_file.hpp"
#include "model/predict/io_checkpoint.hpp"
#include "simulator/recording.hpp"
#include "simulator/simulate.hpp"
#include "tuner/io_fit_answer.hpp"
#include "tuner/remedies.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kMostClusterRanks =
    1 << 24;  // what a cluster can have is checked with the plan

void reject_beside_batch(const Arguments& arguments) {
  for (const char* flag : {"trace", "memory-snapshot"}) {
    if (!arguments.has(flag)) continue;
    throw InputError({kCommandLine, "--" + std::string(flag), "no --batch beside it", "both", ""});
  }
}

// The files that were asked for. Before the answer: where they cannot be written, standard output
// holds the error alone.
void write_recordings(const Arguments& arguments,
                      const Plan& plan,
                      const StepResult& result,
                      Streams streams) {
  const auto trace = arguments.text("trace");
  const auto snapshot = arguments.text("memory-snapshot");
  if (!trace && !snapshot) return;
  if (!is_simulated(plan)) {
    throw InputError({kCommandLine,
                      trace ? "--trace" : "--memory-snapshot",
                      "a DeepSpeed or FSDP engine whose drives are known",
                      "a plan that is predicted by analytic estimates",
                      ""});
  }
  const Recording recording = record_run(plan, result);
  const auto write = [&](const std::string& path, const std::string& text) {
    write_file(path, text);
    streams.log << "wrote " << path << "\n";
  };
  if (trace) write(*trace, recording.trace);
  if (snapshot) write(*snapshot, recording.memory_snapshot);
}

}  // namespace

int run_simulate(const Arguments& arguments, Streams streams) {
  SimulateOptions options;
  double& confidence = options.predict.confidence;
  confidence = arguments.real("confidence", 0.01, 0.9999).value_or(confidence);
  if (const auto rank = arguments.integer("rank", 0, kMostClusterRanks)) {
    options.rank = static_cast<int>(*rank);
  }
  if (arguments.has("compare-versions")) {
    return compare_simulate(arguments, options.predict, streams);
  }
  if (const auto file = arguments.text("batch")) {
    reject_beside_batch(arguments);
    return run_batch(*file, arguments, options, streams);
  }
  if (arguments.has("jobs")) {
    throw InputError({kCommandLine, "--jobs", "--batch beside it", "no batch", ""});
  }
  const CheckpointOptions checkpoint = checkpoint_options_of(arguments);
  options.predict.checkpoint_bandwidth = checkpoint.bandwidth;
  const Scenario scenario = scenario_of(arguments);
  const Plan plan = resolve(scenario);
  StepResult result = simulate(plan, options);
  write_recordings(arguments, plan, result, streams);
  Remedies remedies;
  if (!result.fits) remedies = find_remedies(Variations(scenario), result, options.predict);
  if (arguments.json) {
    streams.out << simulated_document(plan, result, checkpoint, std::move(remedies)).dump(2)
                << "\n";
  } else {
    const Translation words(arguments.language);
    streams.out << simulate_text(
        plan, result, remedies, predict_checkpoint(plan, checkpoint), words);
  }
  return arguments.has("require-fit") && !result.fits ? kAnswerIsNo : kDone;
}

}  // namespace zeroplan
