#include "cli/report/report_data.hpp"

#include <algorithm>
#include <utility>

#include "base/diagnostic.hpp"
#include "model/plan/scenario_reader.hpp"
#include "simulator/simulate.hpp"
#include "tuner/fit.hpp"
#include "tuner/fit_ranking.hpp"

namespace zeroplan::cli {
namespace {

// Of the time limit; the sensitivity of the answer gets what is left.
constexpr double kSearchShare = 0.75;

void say(const ReportOptions& options, const Phrase& phase) {
  if (options.on_phase) options.on_phase(phase);
}

// `question`: what the plan answers, and its alternatives.
ChosenPlan in_detail(const tuner::Question& question,
                     tuner::StrategyResult row,
                     const ReportOptions& how,
                     const tuner::Deadline& deadline) {
  const PredictOptions& options = how.tune.search.limits.predict;
  say(how, "still simulating what else is shown of the chosen configuration");
  ChosenPlan chosen;
  chosen.row = std::move(row);
  const Plan& plan = chosen.row.plan;
  if (!how.quick) chosen.row.result = simulator::simulate(plan, {.predict = options});
  if (how.parts.step && simulator::is_simulated(plan))
    chosen.step = simulator::simulate_step(plan, chosen.row.result);
  if (how.parts.answers && !deadline.over())
    chosen.alternatives = tuner::why(question, chosen.row, options);
  if (Phrase missing = question.missing->sentence(); !missing.empty()) {
    chosen.row.result.warnings.push_back(std::move(missing));
  }
  const Json document = scenario_document(plan, question.scenario);
  const tuner::Variations variations(parse_scenario(document, "the chosen configuration"));
  chosen.sizes = tuner::grid_around(variations.base());
  if (how.parts.answers) {
    simulate_cells(variations, options, deadline, chosen.sizes);
    chosen.if_wrong = if_assumed_wrongly(variations, question.scenario, options, deadline);
  }
  if (how.parts.moves) chosen.sensitivity = sensitivity(variations, options, deadline);
  chosen.sensitivity_base = variations.base();
  return chosen;
}

// As SearchSpace::describe says a point: a strategy moves none of its axes.
Json description_of(const tuner::StrategyResult& row) {
  return Json::object(
      {{"stage", row.strategy.stage},
       {"offload_optimizer", tuner::name(row.strategy.offload_optimizer)},
       {"offload_param", tuner::name(row.strategy.offload_parameter)},
       {"activation_checkpointing",
        name(kActivationCheckpointingNames, row.strategy.checkpointing)},
       {"micro_batch_size", row.plan.workload.micro_batch_size},
       {"gradient_accumulation_steps", row.plan.workload.gradient_accumulation_steps}});
}

// What fit recommends as the one point of its trade-offs.
void take_recommended(const tuner::StrategyResult& best, ReportData& data) {
  tuner::Evaluated point;
  point.fits = true;
  point.tokens_per_second = best.result.step.tokens_per_second_per_gpu;
  point.step = best.result.step.total;
  point.gpu_memory = best.result.gpu.peak_total;
  point.host_memory = best.result.host.peak;
  data.trade_offs.points = {point};
  data.trade_offs.front = {0};
  data.trade_offs.best = 0;
  data.trade_offs.search.best = point;
  data.descriptions = {description_of(best)};
}

ReportData report_of_fit(const Scenario& scenario, const ReportOptions& options) {
  ReportData data;
  const PredictOptions& predict = options.tune.search.limits.predict;
  const tuner::Deadline deadline(options.tune.search.seconds, options.tune.search.interrupted);
  data.cost = options.cost;
  data.searched = false;
  data.fit = options.quick ? tuner::quick_fit(scenario, predict) : tuner::fit(scenario, predict);
  data.scenario = data.fit.needs.any() ? tuner::with_packages(scenario, data.fit.needs) : scenario;
  const std::vector<tuner::StrategyResult>& rows = data.fit.strategies;
  data.points = static_cast<std::int64_t>(rows.size());
  data.trade_offs.evaluated = std::count_if(
      rows.begin(), rows.end(), [](const tuner::StrategyResult& row) { return row.simulated; });
  if (!data.fit.recommended) return data;
  const tuner::StrategyResult& best = rows[*data.fit.recommended];
  take_recommended(best, data);
  data.chosen = in_detail(tuner::ask(data.scenario), best, options, deadline);
  return data;
}

// One that is refused says so, and the others stay.
ComparedAnswer answer_compared(const ComparedQuestion& question, const PredictOptions& options) {
  ComparedAnswer other{question, std::nullopt, {}};
  try {
    const tuner::FitAnswer answer = tuner::strategies_alone(question.scenario, options);
    other.row = answer.recommended ? answer.strategies[*answer.recommended]
                                   : tuner::nearest_of(answer.strategies);
  } catch (const InputError& error) {
    other.refusal = to_string(error.diagnostics().front());
  }
  return other;
}

ReportData searched_report(const Scenario& scenario, const ReportOptions& options) {
  if (!options.parts.search) return report_of_fit(scenario, options);
  ReportData data;
  data.scenario = scenario;
  data.objective = options.tune.objective;
  data.gap = options.tune.search.gap;
  data.cost = options.cost;
  const tuner::SearchLimits& limits = options.tune.search.limits;
  data.strategies_count = options.tune.words.fix.empty() && options.tune.words.search.empty() &&
                          limits.host_memory == Bytes::infinite() &&
                          limits.tokens_per_second <= 0.0;
  const tuner::SearchSpace space(scenario, tuner::read_request(options.tune.words));
  data.points = space.points();
  tuner::SearchOptions search = options.tune.search;
  search.goal = data.objective == tuner::Objective::memory ? tuner::SearchGoal::memory
                                                           : tuner::SearchGoal::throughput;
  const tuner::Deadline all(search.seconds, search.interrupted);
  search.seconds *= kSearchShare;
  constexpr tuner::FrontCounts kFront{12, 24};  // seven more searches make the page, not the answer
  constexpr tuner::FrontCounts kNone{0, 0};
  data.trade_offs =
      trade_offs(space, search, options.ceilings, options.parts.front ? kFront : kNone);
  for (const tuner::Evaluated& item : data.trade_offs.points) {
    data.descriptions.push_back(space.describe(item.point));
  }
  if (options.parts.strategies || !data.trade_offs.search.best) {
    say(options, "still simulating the strategies as they come");
    data.fit = tuner::fit(scenario, search.limits.predict);
  }
  if (!data.trade_offs.search.best && data.fit.needs.any() && !all.over()) {
    ReportOptions left = options;
    left.tune.search.seconds = all.left();
    return searched_report(tuner::with_packages(scenario, data.fit.needs), left);
  }
  if (data.trade_offs.search.best) {
    tuner::StrategyResult best;
    best.plan = space.plan(data.trade_offs.search.best->point);
    best.strategy = tuner::strategy_of(best.plan);
    const tuner::Question question = tuner::ask_of(best.plan, scenario);
    data.chosen = in_detail(question, std::move(best), options, all);
  }
  return data;
}

}  // namespace

ReportData gather_report(const Scenario& scenario, const ReportOptions& options) {
  ReportData data = searched_report(scenario, options);
  for (const ComparedQuestion& question : options.compared) {
    say(options, phrase("still simulating {}", question.flags));
    data.compared.push_back(answer_compared(question, options.tune.search.limits.predict));
  }
  return data;
}

}  // namespace zeroplan::cli
