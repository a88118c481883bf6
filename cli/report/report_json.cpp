// zeroplan.report/1 (docs/report.md).
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "cli/report/report_data.hpp"
#include "cli/report/step_timeline.hpp"
#include "cli/table.hpp"
#include "model/hardware/cluster.hpp"
#include "model/predict/io_step_result.hpp"

namespace zeroplan {
namespace {

Json texts(const std::vector<std::string>& lines) {
  Json list = Json::array();
  for (const std::string& line : lines) list.push_back(line);
  return list;
}

Json categories(const CategoryBytes& bytes) {
  Json object = Json::object();
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) {
    object[kMemoryCategoryNames[i]] = bytes[i].count();
  }
  return object;
}

// The plan that stands for the question: model, cluster, sequence.
const Plan& any_plan(const ReportData& data) {
  return data.chosen ? data.chosen->plan : data.fit.strategies.front().plan;
}

Json question_json(const Plan& plan) {
  const std::string& known = plan.model->name;
  return Json::object({{"model", known.empty() ? plan.model->architecture : known},
                       {"parameters", count_parameters(*plan.model).total.count()},
                       {"cluster", short_name(plan.cluster)},
                       {"gpus", plan.cluster.total_gpus()},
                       {"gpu", plan.cluster.gpu.name},
                       {"capacity_bytes", plan.cluster.gpu.memory.value.count()},
                       {"sequence_length", plan.workload.sequence_length},
                       {"precision", name(kPrecisionNames, plan.workload.precision)}});
}

Json search_json(const ReportData& data) {
  const TradeOffs& all = data.trade_offs;
  return Json::object({{"objective", name(kObjectiveNames, data.objective)},
                       {"points", data.points},
                       {"evaluated", all.evaluated},
                       {"seconds", all.seconds},
                       {"optimal", all.search.optimal},
                       {"gap", data.gap},
                       {"complete", all.complete},
                       {"interrupted", all.search.interrupted}});
}

// What nothing else beats in both, of the searched points and of strategies that count beside them.
struct Front {
  std::set<std::size_t> points;
  std::set<std::size_t> strategies;
};

Front front_of(const ReportData& data) {
  struct Candidate {
    Bytes memory;
    double speed = 0.0;
    bool searched = true;
    std::size_t index = 0;
  };
  std::vector<Candidate> candidates;
  for (const std::size_t i : data.trade_offs.front) {
    const Evaluated& item = data.trade_offs.points[i];
    candidates.push_back({item.gpu_memory, item.tokens_per_second, true, i});
  }
  const std::vector<StrategyResult>& strategies = data.fit.strategies;
  for (std::size_t i = 0; i < strategies.size() && data.strategies_count; ++i) {
    const StepResult& result = strategies[i].result;
    if (!result.fits) continue;
    candidates.push_back({result.gpu.peak_total, result.step.tokens_per_second_per_gpu, false, i});
  }
  // Least memory first; of equal ones the faster, then what was searched.
  std::stable_sort(
      candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
        if (a.memory != b.memory) return a.memory < b.memory;
        if (a.speed != b.speed) return a.speed > b.speed;
        return a.searched && !b.searched;
      });
  Front front;
  double fastest = 0.0;
  for (const Candidate& one : candidates) {
    if (one.speed <= fastest) continue;
    fastest = one.speed;
    (one.searched ? front.points : front.strategies).insert(one.index);
  }
  return front;
}

Json trade_off_json(const ReportData& data, const Front& marked) {
  const TradeOffs& all = data.trade_offs;
  const std::set<std::size_t>& front = marked.points;
  Json list = Json::array();
  for (std::size_t i = 0; i < all.points.size(); ++i) {
    const Evaluated& item = all.points[i];
    list.push_back(Json::object({{"gpu_bytes", item.gpu_memory.count()},
                                 {"host_bytes", item.host_memory.count()},
                                 {"tokens_per_second_per_gpu", item.tokens_per_second},
                                 {"step_seconds", item.step.seconds()},
                                 {"front", front.count(i) > 0},
                                 {"chosen", all.best == i},
                                 {"configuration", data.descriptions[i]}}));
  }
  return list;
}

Json strategies_json(const FitAnswer& answer, const Front& marked) {
  Json list = Json::array();
  for (std::size_t i = 0; i < answer.strategies.size(); ++i) {
    const StrategyResult& row = answer.strategies[i];
    const StepResult& result = row.result;
    list.push_back(
        Json::object({{"name", describe(row.strategy)},
                      {"stage", row.strategy.stage},
                      {"offload_optimizer", name(row.strategy.offload_optimizer)},
                      {"offload_param", name(row.strategy.offload_parameter)},
                      {"activation_checkpointing",
                       name(kActivationCheckpointingNames, row.strategy.checkpointing)},
                      {"micro_batch_size", row.plan.workload.micro_batch_size},
                      {"front", marked.strategies.count(i) > 0},
                      {"fits", result.fits},
                      {"fit_probability", result.fit_probability},
                      {"tokens_per_second_per_gpu", result.step.tokens_per_second_per_gpu},
                      {"gpu_bytes", result.gpu.peak_total.count()},
                      {"host_bytes", result.host.peak.count()},
                      {"breakdown_at_peak", categories(result.gpu.breakdown_at_peak)}}));
  }
  return list;
}

// The moves that change GPU memory or step time most.
Json sensitivity_json(const ChosenPlan& chosen) {
  constexpr std::size_t kMost = 12;
  const Sensitivity& all = chosen.sensitivity;
  std::set<std::size_t> shown;
  for (const Measure measure : {Measure::gpu_memory, Measure::step_time}) {
    const std::vector<std::size_t> largest = largest_movers(all, measure, kMost);
    shown.insert(largest.begin(), largest.end());
  }
  const double speed = all.base.step.tokens_per_second_per_gpu;
  Json list = Json::array();
  for (const std::size_t i : shown) {
    const Move& move = all.moves[i];
    const double moved = move.result.step.tokens_per_second_per_gpu;
    list.push_back(Json::object({{"change", describe(move.variation, chosen.sensitivity_base)},
                                 {"gpu_bytes", added_gpu_bytes(all, move)},
                                 {"host_bytes", added_host_bytes(all, move)},
                                 {"step_seconds", added_seconds(all, move)},
                                 {"speed_change", speed > 0.0 ? moved / speed - 1.0 : 0.0},
                                 {"fits", move.result.fits}}));
  }
  return list;
}

Json chosen_json(const ChosenPlan& chosen, const Scenario& scenario) {
  const Plan& plan = chosen.plan;
  const Json document = scenario_document(plan, scenario);
  const Strategy strategy{plan.engine.stage,
                          plan.engine.offload_optimizer.device,
                          plan.engine.offload_parameter.device,
                          plan.workload.activation_checkpointing};
  return Json::object({{"name",
                        fmt::format("{}, micro-batch {} x accumulation {}",
                                    describe(strategy),
                                    plan.workload.micro_batch_size,
                                    plan.workload.gradient_accumulation_steps)},
                       {"ds_config", emit(written_ds_config(plan))},
                       {"workload", *document.find("workload")},
                       {"result", to_json(chosen.result)}});
}

Json remedies_json(const FitAnswer& answer) {
  Json list = Json::array();
  for (const Remedy& remedy : answer.remedies) {
    list.push_back(
        Json::object({{"change", remedy.change}, {"strategy", describe(remedy.best.strategy)}}));
  }
  return list;
}

}  // namespace

Json to_json(const ReportData& data) {
  const Plan& plan = any_plan(data);
  const Front front = front_of(data);
  Json document = Json::object({{"schema", "zeroplan.report/1"},
                                {"fits", data.chosen.has_value()},
                                {"question", question_json(plan)},
                                {"search", search_json(data)},
                                {"trade_offs", trade_off_json(data, front)},
                                {"chosen", Json()},
                                {"memory_timeline", Json()},
                                {"stream_timeline", Json()},
                                {"strategies", strategies_json(data.fit, front)},
                                {"sensitivity", Json::array()},
                                {"remedies", remedies_json(data.fit)}});
  const StepResult& result = data.chosen ? data.chosen->result : data.fit.strategies.front().result;
  document["assumptions"] = texts(plan.assumptions);
  document["warnings"] = texts(result.warnings);
  if (!data.chosen) return document;
  document["chosen"] = chosen_json(*data.chosen, data.scenario);
  document["sensitivity"] = sensitivity_json(*data.chosen);
  document["sensitivity_complete"] = data.chosen->sensitivity.complete;
  if (data.chosen->step) {
    document["memory_timeline"] = memory_timeline(*data.chosen->step);
    document["stream_timeline"] = stream_timeline(*data.chosen->step);
  }
  return document;
}

}  // namespace zeroplan
