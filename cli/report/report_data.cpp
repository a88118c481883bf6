#include "cli/report/report_data.hpp"

#include "simulator/simulate.hpp"

namespace zeroplan {
namespace {

// Of the time limit; the sensitivity of the answer gets what is left.
constexpr double kSearchShare = 0.75;

ChosenPlan in_detail(const SearchSpace& space,
                     const Evaluated& best,
                     const Scenario& scenario,
                     const PredictOptions& options,
                     const Deadline& deadline) {
  ChosenPlan chosen{space.plan(best.point), {}, {}, {}, {}};
  chosen.result = simulate(chosen.plan, {.predict = options});
  if (is_simulated(chosen.plan)) chosen.step = play_step(chosen.plan, chosen.result);
  const Json document = scenario_document(chosen.plan, scenario);
  const Variations variations(parse_scenario(document, "the chosen configuration"));
  chosen.sensitivity = sensitivity(variations, options, deadline);
  chosen.sensitivity_base = variations.base();
  return chosen;
}

}  // namespace

ReportData gather_report(const Scenario& scenario, const ReportOptions& options) {
  ReportData data;
  data.scenario = scenario;
  data.objective = options.tune.objective;
  data.gap = options.tune.search.gap;
  data.cost = options.cost;
  const SearchLimits& limits = options.tune.search.limits;
  data.strategies_count = options.tune.words.fix.empty() && options.tune.words.search.empty() &&
                          limits.host_memory == Bytes::infinite() &&
                          limits.tokens_per_second <= 0.0;
  const SearchSpace space(scenario, read_request(options.tune.words));
  data.points = space.points();
  SearchOptions search = options.tune.search;
  search.goal = data.objective == Objective::memory ? SearchGoal::memory : SearchGoal::throughput;
  const Deadline all(search.seconds, search.interrupted);
  search.seconds *= kSearchShare;
  constexpr FrontCounts kFront{12, 24};  // seven more searches make the page, not the answer
  data.trade_offs = trade_offs(space, search, options.ceilings, kFront);
  for (const Evaluated& item : data.trade_offs.points) {
    data.descriptions.push_back(space.describe(item.point));
  }
  data.fit = fit(scenario, search.limits.predict);
  if (!data.trade_offs.search.best && data.fit.needs.any() && !all.over()) {
    ReportOptions left = options;
    left.tune.search.seconds = all.left();
    return gather_report(with_packages(scenario, data.fit.needs), left);
  }
  if (data.trade_offs.search.best) {
    data.chosen =
        in_detail(space, *data.trade_offs.search.best, scenario, search.limits.predict, all);
  }
  return data;
}

}  // namespace zeroplan
