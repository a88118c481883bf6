// zeroplan fit: yes or no, every strategy, the recommended one and its ds_config.json.
#include <ostream>
#include <string>

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/compare_versions.hpp"
#include "cli/cost_options.hpp"
#include "cli/fit_text.hpp"
#include "cli/freed_memory.hpp"
#include "cli/remedies.hpp"
#include "cli/which_gpu.hpp"
#include "cli/write_kit.hpp"
#include "model/predict/io_step_result.hpp"
#include "tuner/fit.hpp"
#include "tuner/fit_ranking.hpp"
#include "tuner/kit/kit.hpp"

namespace zeroplan {
namespace {

Json strategy_json(const StrategyResult& row, const Scenario& scenario) {
  const Json document = scenario_document(row.plan, scenario);
  return Json::object(
      {{"name", describe(row.strategy)},
       {"stage", row.strategy.stage},
       {"offload_optimizer", name(row.strategy.offload_optimizer)},
       {"offload_param", name(row.strategy.offload_parameter)},
       {"activation_checkpointing",
        name(kActivationCheckpointingNames, row.strategy.checkpointing)},
       {"micro_batch_size", row.plan.workload.micro_batch_size},
       {"gradient_accumulation_steps", row.plan.workload.gradient_accumulation_steps},
       {"fits", row.result.fits},
       {"simulated", row.simulated},
       {"at_limit", row.result.fits && is_at_limit(row.result)},
       {"host_memory_stated", row.plan.cluster.node.host_memory.confidence != Confidence::assumed},
       {"ds_config", emit(written_ds_config(row.plan))},
       {"workload", *document.find("workload")},
       {"result", to_json(row.result)}});
}

Json answer_json(const FitAnswer& answer, const Scenario& scenario) {
  Json document = Json::object({{"schema", "zeroplan.fit/1"},
                                {"fits", answer.recommended.has_value()},
                                {"recommended", Json()}});
  Json strategies = Json::array();
  for (const StrategyResult& row : answer.strategies) {
    strategies.push_back(strategy_json(row, scenario));
  }
  if (answer.recommended) {
    document["recommended"] = strategies.items()[*answer.recommended];
  }
  if (answer.headroom) {
    document["largest_micro_batch"] = answer.headroom->largest_micro_batch;
    document["longest_sequence"] = answer.headroom->longest_sequence;
  }
  if (answer.one_node) document["one_node"] = strategy_json(*answer.one_node, scenario);
  document["needs_packages"] = answer.needs.any() ? Json(names_of(answer.needs)) : Json();
  if (answer.faster_with) {
    Json faster = strategy_json(answer.faster_with->best, scenario);
    faster["packages"] = names_of(answer.faster_with->packages);
    document["faster_with"] = faster;
  }
  document["strategies"] = strategies;
  document["remedies"] = remedies_json(answer.remedies);
  return document;
}

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
    streams.out << answer_json(answer, scenario).dump(2) << "\n";
  } else {
    streams.out << fit_text(answer, arguments.has("all"), words);
    if (answer.recommended) streams.out << words.text(cost_line(arguments, scenario, answer));
  }
  return answer.recommended ? kDone : kAnswerIsNo;
}

}  // namespace zeroplan
