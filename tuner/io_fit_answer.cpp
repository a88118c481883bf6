#include "tuner/io_fit_answer.hpp"

#include <utility>

#include "model/predict/io_checkpoint.hpp"
#include "model/predict/io_step_result.hpp"
#include "tuner/fit_ranking.hpp"
#include "tuner/remedies.hpp"

namespace zeroplan::tuner {
namespace {

Json strategy_json(const StrategyResult& row, const Scenario& scenario) {
  const Json document = scenario_document(row.plan, scenario);
  return Json::object(
      {{"name", describe(row.strategy).english()},
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

Json remedy_json(const Remedy& remedy) {
  return Json::object({{"change", remedy.change.english()},
                       {"price", name(kRemedyPriceNames, remedy.price)},
                       {"strategy", describe(remedy.best.strategy).english()},
                       {"ds_config", emit(written_ds_config(remedy.best.plan))},
                       {"result", to_json(remedy.best.result)}});
}

}  // namespace

Json to_json(const std::vector<Remedy>& remedies) {
  Json array = Json::array();
  for (const Remedy& remedy : remedies) array.push_back(remedy_json(remedy));
  return array;
}

Json to_json(const FitAnswer& answer, const Scenario& scenario) {
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
  // `fit --quick` has not looked for it.
  if (answer.headroom) {
    document["largest_micro_batch"] = answer.headroom->largest_micro_batch;
    document["longest_sequence"] = answer.headroom->longest_sequence;
  }
  if (answer.without_deepspeed) {
    document["without_deepspeed"] = strategy_json(*answer.without_deepspeed, scenario);
  }
  if (answer.one_node) document["one_node"] = strategy_json(*answer.one_node, scenario);
  if (answer.usual_host) {
    const UsualHost& usual = *answer.usual_host;
    document["usual_host"] = usual.best ? strategy_json(*usual.best, scenario) : Json();
    if (usual.best) {
      document["usual_host"]["packages"] = usual.needs.any() ? Json(names_of(usual.needs)) : Json();
    }
    if (usual.remedy) document["usual_host_remedy"] = remedy_json(*usual.remedy);
  }
  document["needs_packages"] = answer.needs.any() ? Json(names_of(answer.needs)) : Json();
  if (answer.with_expandable_segments) {
    document["with_expandable_segments"] = to_json(*answer.with_expandable_segments);
  }
  if (answer.faster_with) {
    Json faster = strategy_json(answer.faster_with->best, scenario);
    faster["packages"] = names_of(answer.faster_with->packages);
    document["faster_with"] = faster;
  }
  document["strategies"] = strategies;
  document["remedies"] = to_json(answer.remedies);
  document["tried"] = Json::array();
  for (const Phrase& change : answer.tried) document["tried"].push_back(change.english());
  return document;
}

Json simulated_document(const Plan& plan,
                        StepResult result,
                        const CheckpointOptions& checkpoint,
                        Remedies remedies) {
  if (result.fits) return step_document(plan, result, checkpoint);
  const std::vector<Remedy> fit = fitting(std::move(remedies));
  say_cheapest_change(fit, result);
  Json document = step_document(plan, result, checkpoint);
  document["remedies"] = to_json(fit);
  return document;
}

}  // namespace zeroplan::tuner
