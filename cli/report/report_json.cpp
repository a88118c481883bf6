// zeroplan.report/1 (docs/report.md).
#include <algorithm>
#include <set>
#include <string>

#include <fmt/format.h>

#include "cli/cost_options.hpp"
#include "cli/language/translation.hpp"
#include "cli/report/report_data.hpp"
#include "cli/report/step_timeline.hpp"
#include "cli/step_text.hpp"
#include "cli/table.hpp"
#include "cli/why_text.hpp"
#include "model/hardware/cluster.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/io_step_result.hpp"
#include "tuner/fit_ranking.hpp"
#include "tuner/kit/trainer_line.hpp"

namespace zeroplan::cli {
namespace {

std::string launcher(const Plan& plan) {
  const Cluster& cluster = plan.cluster;
  if (plan.workload.engine != TrainingEngine::deepspeed) {
    return "torchrun --nproc_per_node " + std::to_string(cluster.gpus_per_node());
  }
  return cluster.nodes > 1 ? "deepspeed --hostfile hostfile"
                           : "deepspeed --num_gpus " + std::to_string(cluster.gpus_per_node());
}

// "deepspeed --num_gpus 8 train.py --deepspeed ds_config.json --per_device_train_batch_size 4 ..."
std::string launch_line(const Plan& plan) {
  const std::string start = launcher(plan) + " train.py ";
  if (plan.workload.frontend == Frontend::native) {
    return start + "--deepspeed --deepspeed_config ds_config.json";
  }
  return start + tuner::trainer_arguments(plan);
}

Json texts(const std::vector<Phrase>& lines, const Translation& words) {
  Json list = Json::array();
  for (const Phrase& line : lines) list.push_back(words.text(line));
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
  return data.chosen ? data.chosen->row.plan : data.fit.strategies.front().plan;
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

// Was nothing left that could fit?
bool is_proven_empty(const tuner::SearchResult& search) {
  return !search.best && search.unseen == 0 && !search.interrupted && !search.out_of_time;
}

Json search_json(const ReportData& data) {
  const tuner::TradeOffs& all = data.trade_offs;
  return Json::object({{"objective", name(tuner::kObjectiveNames, data.objective)},
                       {"points", data.points},
                       {"searched", data.searched},
                       {"evaluated", all.evaluated},
                       {"seconds", all.seconds},
                       {"optimal", all.search.optimal},
                       {"gap", data.gap},
                       {"complete", all.complete},
                       {"counted_out", all.counted_out},
                       {"proven_empty", is_proven_empty(all.search)},
                       {"interrupted", all.search.interrupted}});
}

// What nothing else beats in both, of the searched points and of strategies that count beside them.
struct Front {
  std::set<std::size_t> points;
  std::set<std::size_t> strategies;
};

struct Candidate {
  Bytes memory;
  double speed = 0.0;
  bool searched = true;
  std::size_t index = 0;
};

// The answer is the simplest of what is equal within the search's gap: what beats it by less than
// that in both is no better, so that the answer stands on its front.
void drop_equals(const ReportData& data, std::vector<Candidate>& candidates) {
  if (!data.trade_offs.best) return;
  const std::size_t best = *data.trade_offs.best;
  const tuner::Evaluated& chosen = data.trade_offs.points[best];
  const double gap = data.gap;
  const auto most = chosen.tokens_per_second * (1.0 + gap);
  const auto least = static_cast<double>(chosen.gpu_memory.count()) / (1.0 + gap);
  std::erase_if(candidates, [&](const Candidate& one) {
    if (one.searched && one.index == best) return false;
    const bool beats = one.memory <= chosen.gpu_memory && one.speed >= chosen.tokens_per_second;
    return beats && one.speed <= most && static_cast<double>(one.memory.count()) >= least;
  });
}

Front front_of(const ReportData& data) {
  std::vector<Candidate> candidates;
  for (const std::size_t i : data.trade_offs.front) {
    const tuner::Evaluated& item = data.trade_offs.points[i];
    candidates.push_back({item.gpu_memory, item.tokens_per_second, true, i});
  }
  const std::vector<tuner::StrategyResult>& strategies = data.fit.strategies;
  for (std::size_t i = 0; i < strategies.size() && data.strategies_count; ++i) {
    const StepResult& result = strategies[i].result;
    if (!result.fits) continue;
    candidates.push_back({result.gpu.peak_total, result.step.tokens_per_second_per_gpu, false, i});
  }
  drop_equals(data, candidates);
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
  if (data.trade_offs.best) front.points.insert(*data.trade_offs.best);
  return front;
}

Json trade_off_json(const ReportData& data, const Front& marked) {
  const tuner::TradeOffs& all = data.trade_offs;
  const std::set<std::size_t>& front = marked.points;
  Json list = Json::array();
  for (std::size_t i = 0; i < all.points.size(); ++i) {
    const tuner::Evaluated& item = all.points[i];
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

Json strategies_json(const ReportData& data, const Front& marked, const Translation& words) {
  const tuner::FitAnswer& answer = data.fit;
  Json list = Json::array();
  for (std::size_t i = 0; i < answer.strategies.size(); ++i) {
    const tuner::StrategyResult& row = answer.strategies[i];
    const StepResult& result = row.result;
    list.push_back(Json::object(
        {{"name", words.text(describe(row.strategy))},
         {"stage", row.strategy.stage},
         {"offload_optimizer", tuner::name(row.strategy.offload_optimizer)},
         {"offload_param", tuner::name(row.strategy.offload_parameter)},
         {"activation_checkpointing",
          name(kActivationCheckpointingNames, row.strategy.checkpointing)},
         {"micro_batch_size", row.plan.workload.micro_batch_size},
         {"gradient_accumulation_steps", row.plan.workload.gradient_accumulation_steps},
         {"front", marked.strategies.count(i) > 0},
         {"chosen", !data.searched && answer.recommended == i},
         {"fits", result.fits},
         {"fit_probability", result.fit_probability},
         {"tokens_per_second_per_gpu", result.step.tokens_per_second_per_gpu},
         {"gpu_bytes", result.gpu.peak_total.count()},
         {"host_bytes", result.host.peak.count()},
         {"host_to_have_bytes",
          result.host_condition ? Json(result.host_condition->enough.count()) : Json()},
         {"breakdown_at_peak", categories(result.gpu.breakdown_at_peak)}}));
  }
  return list;
}

// The moves that change GPU memory or step time most.
Json sensitivity_json(const ChosenPlan& chosen, const Translation& words) {
  constexpr std::size_t kMost = 12;
  const tuner::Sensitivity& all = chosen.sensitivity;
  std::set<std::size_t> shown;
  for (const tuner::Measure measure : {tuner::Measure::gpu_memory, tuner::Measure::step_time}) {
    const std::vector<std::size_t> largest = tuner::largest_movers(all, measure, kMost);
    shown.insert(largest.begin(), largest.end());
  }
  const double speed = all.base.step.tokens_per_second_per_gpu;
  Json list = Json::array();
  for (const std::size_t i : shown) {
    const tuner::Move& move = all.moves[i];
    const double moved = move.result.step.tokens_per_second_per_gpu;
    const Phrase change = describe(move.variation, chosen.sensitivity_base);
    list.push_back(Json::object({{"change", words.text(change)},
                                 {"gpu_bytes", tuner::added_gpu_bytes(all, move)},
                                 {"host_bytes", tuner::added_host_bytes(all, move)},
                                 {"step_seconds", tuner::added_seconds(all, move)},
                                 {"speed_change", speed > 0.0 ? moved / speed - 1.0 : 0.0},
                                 {"fits", move.result.fits}}));
  }
  return list;
}

// The chosen plan with the allocator's segments expanding: GPU bytes, seconds; null where they may
// not, or do.
Json expandable_json(const tuner::Sensitivity& all) {
  for (const tuner::Move& move : all.moves) {
    if (spelling(move.variation.changes.front()) != info(ScenarioKey::expandable_segments).flag)
      continue;
    return Json::object({{"gpu_bytes", move.result.gpu.peak_total.count()},
                         {"step_seconds", move.result.step.total.seconds()},
                         {"fits", move.result.fits}});
  }
  return {};
}

// Null where it was refused or the time was over.
Json outcome_json(const tuner::VariedResult& outcome) {
  if (!outcome.result) return {};
  return Json::object(
      {{"fits", outcome.result->fits},
       {"gpu_bytes", outcome.result->gpu.peak_total.count()},
       {"step_seconds", outcome.result->step.total.seconds()},
       {"tokens_per_second_per_gpu", outcome.result->step.tokens_per_second_per_gpu}});
}

Json sizes_json(const tuner::SizeGrid& grid) {
  Json lengths = Json::array();
  Json batches = Json::array();
  Json cells = Json::array();
  for (const std::int64_t tokens : grid.sequence_lengths) lengths.push_back(Json(tokens));
  for (const std::int64_t sequences : grid.micro_batch_sizes) batches.push_back(Json(sequences));
  for (const tuner::VariedResult& cell : grid.cells) cells.push_back(outcome_json(cell));
  return Json::object({{"sequence_lengths", std::move(lengths)},
                       {"micro_batch_sizes", std::move(batches)},
                       {"cells", std::move(cells)}});
}

// Those that were refused are left out.
Json if_wrong_json(const std::vector<tuner::AssumptionMove>& moves, const Translation& words) {
  Json list = Json::array();
  for (const tuner::AssumptionMove& move : moves) {
    Json outcome = outcome_json(move.outcome);
    if (outcome.is_null()) continue;
    outcome["if"] = words.text(move.instead);
    list.push_back(std::move(outcome));
  }
  return list;
}

Json compared_json(const ReportData& data, const ComparedAnswer& other, const Translation& words) {
  Json row = Json::object({{"flags", other.question.flags}});
  if (!other.row) {
    row["refusal"] = words.text(other.refusal);
    return row;
  }
  const tuner::StrategyResult& best = *other.row;
  const tuner::TrainingCost cost = tuner::training_cost(
      data.cost, written_cluster(other.question.scenario), best.plan, best.result);
  row["name"] = words.text(full_name(best));
  row["fits"] = best.result.fits;
  row["gpus"] = best.plan.cluster.total_gpus();
  row["gpu_bytes"] = best.result.gpu.peak_total.count();
  row["capacity_bytes"] = best.result.gpu.capacity.count();
  row["tokens_per_second"] = best.result.step.tokens_per_second_per_gpu *
                             static_cast<double>(best.plan.cluster.total_gpus());
  row["of"] = words.text(size_text(cost));
  row["hours"] = cost.hours;
  row["cost"] = cost.cost ? Json(*cost.cost) : Json();
  return row;
}

Json batch_json(const Plan& plan) {
  const Workload& workload = plan.workload;
  const std::int64_t sequences =
      workload.micro_batch_size * workload.gradient_accumulation_steps * plan.degrees.data;
  return Json::object({{"micro_batch_size", workload.micro_batch_size},
                       {"gradient_accumulation_steps", workload.gradient_accumulation_steps},
                       {"ranks", plan.degrees.data},
                       {"sequences", sequences},
                       {"tokens", sequences * workload.sequence_length}});
}

Json training_json(const ReportData& data, const Translation& words) {
  const ChosenPlan& chosen = *data.chosen;
  const tuner::TrainingCost cost = tuner::training_cost(
      data.cost, written_cluster(data.scenario), chosen.row.plan, chosen.row.result);
  Json json = Json::object({{"of", words.text(size_text(cost))},
                            {"assumed", cost.assumed},
                            {"hours", cost.hours},
                            {"currency", data.cost.prices.currency}});
  json["cost"] = cost.cost ? Json(*cost.cost) : Json();
  json["prices"] = data.cost.price_per_gpu_hour ? "" : data.cost.prices.source;
  return json;
}

// The bars of a page show a strategy's memory and speed.
Json shown_json(const tuner::StrategyResult& row, const std::string& name) {
  const Node& node = row.plan.cluster.node;
  return Json::object(
      {{"name", name},
       {"host_memory_stated", node.host_memory.confidence != Confidence::assumed},
       {"nvme_capacity_bytes", node.nvme ? Json(node.nvme->capacity.value.count()) : Json()},
       {"result", to_json(row.result)}});
}

Json chosen_json(const ReportData& data, const Translation& words) {
  const ChosenPlan& chosen = *data.chosen;
  const Plan& plan = chosen.row.plan;
  const Json document = scenario_document(plan, data.scenario);
  const Phrase name = phrase("{}, micro-batch {} x accumulation {}",
                             describe(chosen.row.strategy),
                             plan.workload.micro_batch_size,
                             plan.workload.gradient_accumulation_steps);
  Json json = shown_json(chosen.row, words.text(name));
  json["launch"] = launch_line(plan);
  json["batch"] = batch_json(plan);
  json["training"] = training_json(data, words);
  json["ds_config"] = emit(written_ds_config(plan));
  json["workload"] = *document.find("workload");
  json["scenario"] = document;
  return json;
}

Json remedies_json(const tuner::FitAnswer& answer, const Translation& words) {
  Json list = Json::array();
  for (const tuner::Remedy& remedy : answer.remedies) {
    list.push_back(Json::object({{"change", words.text(remedy.change)},
                                 {"strategy", describe(remedy.best.strategy).english()}}));
  }
  return list;
}

}  // namespace

Json to_json(const ReportData& data, const Translation& words) {
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
                                {"strategies", strategies_json(data, front, words)},
                                {"why", Json::array()},
                                {"trust", Json()},
                                {"sizes", Json()},
                                {"if_wrong", Json::array()},
                                {"compared", Json::array()},
                                {"sensitivity", Json::array()},
                                {"with_expandable_segments", Json()},
                                {"nearest", Json()},
                                {"remedies", remedies_json(data.fit, words)}});
  const StepResult& result =
      data.chosen ? data.chosen->row.result : data.fit.strategies.front().result;
  document["assumptions"] = texts(result.assumptions, words);
  document["warnings"] = texts(result.warnings, words);
  for (const ComparedAnswer& other : data.compared) {
    document["compared"].push_back(compared_json(data, other, words));
  }
  if (!data.chosen) {
    const tuner::StrategyResult& nearest = tuner::nearest_of(data.fit.strategies);
    document["nearest"] = shown_json(nearest, words.text(full_name(nearest)));
    return document;
  }
  document["chosen"] = chosen_json(data, words);
  document["why"] = alternatives_json(data.chosen->alternatives, data.chosen->row, words);
  document["trust"] = trust_json(data.chosen->row.plan, words);
  document["sizes"] = sizes_json(data.chosen->sizes);
  document["if_wrong"] = if_wrong_json(data.chosen->if_wrong, words);
  document["with_expandable_segments"] = expandable_json(data.chosen->sensitivity);
  document["sensitivity"] = sensitivity_json(*data.chosen, words);
  document["sensitivity_complete"] = data.chosen->sensitivity.complete;
  if (data.chosen->step) {
    document["memory_timeline"] = memory_timeline(*data.chosen->step);
    document["stream_timeline"] = stream_timeline(*data.chosen->step);
  }
  return document;
}

}  // namespace zeroplan::cli
