#include "tuner/io_tune_answer.hpp"

#include <string>

#include "model/predict/io_step_result.hpp"
#include "tuner/io_fit_answer.hpp"
#include "tuner/kit/kit.hpp"

namespace zeroplan::tuner {
namespace {

Json configuration_json(const Plan& plan, const Scenario& scenario) {
  const Json document = scenario_document(plan, scenario);
  return Json::object({{"scenario", document},
                       {"ds_config", emit(written_ds_config(plan))},
                       {"workload", *document.find("workload")}});
}

Json point_json(const FrontPoint& point, const Scenario& scenario) {
  const Evaluated& item = point.seen;
  Json row = configuration_json(point.plan, scenario);
  row.erase("scenario");
  row["tokens_per_second_per_gpu"] = item.tokens_per_second;
  row["step_seconds"] = item.step.seconds();
  row["gpu_bytes"] = item.gpu_memory.count();
  row["host_bytes"] = item.host_memory.count();
  return row;
}

Json pareto_json(const TuneAnswer& answer) {
  Json list = Json::array();
  for (const FrontPoint& point : answer.pareto) {
    list.push_back(point_json(point, answer.scenario));
  }
  return list;
}

Json impacts_json(const TuneAnswer& answer) {
  Json list = Json::array();
  for (const KnobImpact& impact : answer.impacts) {
    Json unfit = Json::array();
    for (const std::string& value : impact.unfit) unfit.push_back(value);
    Json row = Json::object({{"key", impact.key}, {"value", impact.value}});
    row["other"] = impact.other.empty() ? Json() : Json(impact.other);
    row["speed_change"] = impact.other.empty() ? Json() : Json(impact.speed_change);
    row["does_not_fit_with"] = unfit;
    list.push_back(row);
  }
  return list;
}

}  // namespace

Json to_json(const TuneAnswer& answer, const TuneOptions& options, std::optional<double> price) {
  const SearchResult& search = answer.search;
  Json document = Json::object({{"schema", "zeroplan.tune/1"}, {"best", Json()}});
  if (answer.plan) {
    Json best = configuration_json(*answer.plan, answer.scenario);
    best["result"] = to_json(answer.result);
    document["best"] = best;
  }
  document["top"] = answer.top ? point_json(*answer.top, answer.scenario) : Json();
  document["pareto"] = pareto_json(answer);
  document["points"] = search.points;
  document["needs_packages"] = answer.needs.any() ? Json(names_of(answer.needs)) : Json();
  if (answer.faster_with) {
    document["faster_with"] =
        Json::object({{"packages", names_of(answer.faster_with->packages)},
                      {"tokens_per_second_per_gpu", answer.faster_with->tokens_per_second}});
  }
  document["evaluated"] = search.evaluated;
  document["pruned"] = search.pruned;
  document["seconds"] = search.seconds;
  document["optimal"] = search.optimal;
  document["gap"] = options.search.gap;
  document["unseen"] = search.unseen;
  document["cut_by_time_limit"] = search.out_of_time;
  document["unseen_at_most"] = search.unseen_at_most;
  document["objective"] = name(kObjectiveNames, options.objective);
  Json tally = Json::array();
  for (const auto& [reason, row] : search.tally) {
    tally.push_back(
        Json::object({{"reason", reason.english()}, {"count", row.count}, {"sample", row.sample}}));
  }
  document["tally"] = tally;
  document["impacts"] = impacts_json(answer);
  if (answer.headroom) {
    document["largest_micro_batch"] = answer.headroom->largest_micro_batch;
    document["longest_sequence"] = answer.headroom->longest_sequence;
  }
  if (answer.fewest_gpus) document["fewest_gpus"] = *answer.fewest_gpus;
  if (answer.plan) {
    const double hours = 1e6 / answer.result.step.tokens_per_second_per_gpu / 3600.0;
    document["gpu_hours_per_million_tokens"] = hours;
    if (price) document["price_per_million_tokens"] = hours * *price;
  }
  if (answer.nearest) {
    Json nearest = configuration_json(answer.nearest->plan, answer.scenario);
    nearest["change"] = answer.nearest->change.english();
    nearest["result"] = to_json(answer.nearest->result);
    document["nearest"] = nearest;
  }
  document["remedies"] = to_json(answer.remedies);
  Json cut_off = Json::array();
  for (const Reason reason : answer.cut_off) cut_off.push_back(name(kReasonNames, reason));
  document["cut_off"] = cut_off;
  return document;
}

}  // namespace zeroplan::tuner
