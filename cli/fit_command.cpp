// zeroplan fit: yes or no, every strategy, the recommended one and its ds_config.json.
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.hpp"
#include "cli/compare_versions.hpp"
#include "cli/cost_options.hpp"
#include "cli/fit_document.hpp"
#include "cli/fit_text.hpp"
#include "cli/progress_bar.hpp"
#include "cli/which_gpu.hpp"
#include "cli/why_text.hpp"
#include "cli/write_plan.hpp"
#include "tuner/fit.hpp"
#include "tuner/fit_ranking.hpp"
#include "tuner/packages.hpp"
#include "tuner/why.hpp"

namespace zeroplan::cli {
namespace {

// Hours and money, where --tokens or a price was said and something fits.
Phrase training_cost_text(const Arguments& arguments,
                          const Scenario& scenario,
                          const tuner::FitAnswer& answer) {
  const bool asked = arguments.has("tokens") || arguments.has("price") || arguments.has("prices");
  if (!asked || !answer.recommended) return "";
  const tuner::StrategyResult& best = answer.strategies[*answer.recommended];
  const tuner::CostQuestion question = cost_question_of(arguments);
  const tuner::TrainingCost cost =
      tuner::training_cost(question, written_cluster(scenario), best.plan, best.result);
  Phrase hours = hours_text(cost.hours);
  if (cost.cost) hours.append(phrase(", {}", money_text(cost.cost, question.prices.currency)));
  return phrase("{}: {}", size_text(cost), hours);
}

// The reasons that --why asks for. One that a defect ends is a warning of the recommended row.
std::vector<tuner::Alternative> reasons_of(const Arguments& arguments,
                                           const Scenario& scenario,
                                           const PredictOptions& options,
                                           tuner::FitAnswer& answer) {
  if (!arguments.has("why") || !answer.recommended) return {};
  const tuner::Question question = tuner::ask(tuner::with_packages(scenario, answer.needs));
  StepResult& chosen = answer.strategies[*answer.recommended].result;
  std::vector<tuner::Alternative> reasons =
      tuner::why(question, answer.strategies[*answer.recommended], options);
  if (Phrase missing = question.missing->sentence(); !missing.empty()) {
    chosen.warnings.push_back(std::move(missing));
  }
  return reasons;
}

}  // namespace

int run_fit(const Arguments& arguments, Streams streams) {
  const Translation words(arguments.language);
  const Scenario scenario = scenario_of(arguments);
  PredictOptions options;
  options.confidence = arguments.real("confidence", 0.01, 0.9999).value_or(options.confidence);
  Progress progress(
      streams.log,
      words.text("still simulating every placement, event by event (--quick: a first answer)"));
  if (arguments.has("compare-versions")) {
    return compare_fit(arguments, scenario, options, streams, progress);
  }
  if (const auto code = answer_which_gpu(arguments, options, streams, progress)) return *code;
  const std::optional<Output> output = output_of(arguments);
  tuner::FitAnswer answer =
      arguments.has("quick") ? tuner::quick_fit(scenario, options) : tuner::fit(scenario, options);
  const std::vector<tuner::Alternative> reasons = reasons_of(arguments, scenario, options, answer);
  progress.end();
  // Files first: where they cannot be written, standard output holds the error alone.
  if (output && answer.recommended) {
    const tuner::StrategyResult& best = answer.strategies[*answer.recommended];
    write_plan(best.plan, scenario, best.result, arguments, *output, streams.log);
  } else if (output) {
    streams.log << words.text(phrase("nothing written to {}: no strategy fits\n", output->path));
  }
  if (arguments.json) {
    const Translation of_documents(arguments.document_language);
    Json document = fit_document(answer, scenario, of_documents);
    if (arguments.has("why")) {
      const tuner::StrategyResult& best = answer.recommended
                                              ? answer.strategies[*answer.recommended]
                                              : tuner::nearest_of(answer.strategies);
      if (answer.recommended) document["why"] = alternatives_json(reasons, best, of_documents);
      document["trust"] = trust_json(best.plan, of_documents);
    }
    streams.out << document.dump(2) << "\n";
  } else {
    const Phrase cost = training_cost_text(arguments, scenario, answer);
    streams.out << fit_text(answer, reasons, cost, arguments.has("all"), words);
  }
  return answer.recommended ? kDone : kAnswerIsNo;
}

}  // namespace zeroplan::cli
