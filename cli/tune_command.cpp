// zeroplan tune: the best configuration of a space, proven, and why not the others.
#include "cli/tune_command.hpp"

#include <optional>
#include <ostream>
#include <string>

#include "cli/interrupt.hpp"
#include "cli/progress_bar.hpp"
#include "cli/search_options.hpp"
#include "cli/tune_text.hpp"
#include "cli/write_file.hpp"
#include "cli/write_plan.hpp"
#include "tuner/io_tune_answer.hpp"
#include "tuner/tune.hpp"

namespace zeroplan {
namespace {

void write_answer(const TuneAnswer& answer,
                  const Arguments& arguments,
                  const Output& output,
                  std::ostream& log) {
  if (answer.plan) {
    return write_plan(*answer.plan, answer.scenario, answer.result, arguments, output, log);
  }
  const Translation words(arguments.language);
  const SearchResult& search = answer.search;
  const bool unknown = search.interrupted || search.out_of_time || search.stalled;
  const Phrase why = unknown ? "nothing found so far that fits" : "nothing fits";
  log << words.text(phrase("nothing written to {}: {}", output.path, why)) << "\n";
}

}  // namespace

int run_tune(const Arguments& arguments, Streams streams) {
  const Translation words(arguments.language);
  const Scenario scenario = scenario_of(arguments);
  TuneOptions options = tune_options_of(arguments, scenario, kTuneCounts);
  const auto price = arguments.real("price", 0.0, 1e9);
  const std::optional<Output> output = output_of(arguments);
  if (output) require_output(arguments, *output);
  TuneAnswer answer;
  {
    std::optional<InterruptGuard> guard;  // before the search there is nothing to keep
    ProgressBar bar(streams.log);
    options.search.interrupted = &InterruptGuard::flag();
    options.search.on_progress = [&](const SearchProgress& progress) {
      if (!guard) guard.emplace();
      show_progress(progress, bar, words);
    };
    answer = tune(scenario, options);
  }
  // Files first: where they cannot be written, standard output holds the error alone.
  if (output) write_answer(answer, arguments, *output, streams.log);
  if (arguments.json) {
    streams.out << to_json(answer, options, price).dump(2) << "\n";
  } else {
    streams.out << tune_text(answer, options, price, words);
  }
  if (answer.interrupted) return interrupted().value_or(kInternalError);
  if (answer.plan) return kDone;
  return nothing_found(!answer.search.out_of_time && !answer.search.stalled, streams, words);
}

}  // namespace zeroplan
