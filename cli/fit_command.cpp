// zeroplan fit: yes or no, every strategy, the recommended one and its ds_config.json.
#include <ostream>
#include <string>

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/compare_versions.hpp"
#include "cli/cost_options.hpp"
#include "cli/fit_text.hpp"
#include "cli/freed_memory.hpp"
#include "cli/which_gpu.hpp"
#include "cli/write_kit.hpp"
#include "tuner/fit.hpp"
#include "tuner/io_fit_answer.hpp"
#include "tuner/kit/kit.hpp"

namespace zeroplan {
namespace {

// Hours and money, where --tokens or a price was said.
std::string cost_line(const Arguments& arguments,
                      const Scenario& scenario,
                      const FitAnswer& answer) {
  if (!arguments.has("tokens") && !arguments.has("price") && !arguments.has("prices")) return "";
  const StrategyResult& best = answer.strategies[*answer.recommended];
  const CostQuestion question = cost_question_of(arguments);
  const TrainingCost cost =
      training_cost(question, written_cluster(scenario), best.plan, best.result);
  return fmt::format("\n{}: {}{}\n",
                     size_text(cost),
                     hours_text(cost.hours),
                     cost.cost ? ", " + money_text(cost.cost, question.prices.currency) : "");
}

// The kit of the recommended strategy.
void write_answer(const FitAnswer& answer,
                  const Scenario& scenario,
                  const std::string& folder,
                  bool force,
                  std::ostream& log,
                  const Translation& words) {
  const StrategyResult& best = answer.strategies[*answer.recommended];
  write_kit(make_kit(best.plan, planned_document(best.plan, scenario), best.result),
            folder,
            force,
            log,
            words);
}

}  // namespace

int run_fit(const Arguments& arguments, Streams streams) {
  keep_freed_memory();
  const Translation words(arguments.language);
  const Scenario scenario = scenario_of(arguments);
  PredictOptions options;
  options.confidence = arguments.real("confidence", 0.01, 0.9999).value_or(options.confidence);
  if (arguments.has("compare-versions")) {
    return compare_fit(arguments, scenario, options, streams);
  }
  if (const auto code = answer_which_gpu(arguments, options, streams)) return *code;
  const FitAnswer answer =
      arguments.has("quick") ? quick_fit(scenario, options) : fit(scenario, options);
  // Files first: where they cannot be written, standard output holds the error alone.
  if (const auto folder = arguments.text("output")) {
    if (answer.recommended) {
      write_answer(answer, scenario, *folder, arguments.has("force"), streams.log, words);
    } else {
      streams.log << words.text("nothing written to " + *folder + ": no strategy fits\n");
    }
  }
  if (arguments.json) {
    streams.out << to_json(answer, scenario).dump(2) << "\n";
  } else {
    streams.out << fit_text(answer, arguments.has("all"), words);
    if (answer.recommended) streams.out << words.text(cost_line(arguments, scenario, answer));
  }
  return answer.recommended ? kDone : kAnswerIsNo;
}

}  // namespace zeroplan
