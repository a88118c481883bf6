// What a report shows, gathered from tuner and simulator: the page, the single plots and `--json`
// are made of this and ask nothing else.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/json.hpp"
#include "cli/language/translation.hpp"
#include "simulator/recording.hpp"
#include "tuner/fit.hpp"
#include "tuner/sensitivity.hpp"
#include "tuner/trade_offs.hpp"
#include "tuner/training_cost.hpp"
#include "tuner/tune.hpp"
#include "tuner/what_if.hpp"
#include "tuner/why.hpp"

namespace zeroplan::cli {

// One configuration in detail.
struct ChosenPlan {
  tuner::StrategyResult row;
  std::vector<tuner::Alternative> alternatives;  // why it, and not another
  std::optional<simulator::SimulatedStep> step;  // where the plan is simulated
  tuner::Sensitivity sensitivity;
  Plan sensitivity_base;  // the plan as its moves are described against
  tuner::SizeGrid sizes;
  std::vector<tuner::AssumptionMove> if_wrong;
};

// The question with other flags, as `fit` answers it.
struct ComparedQuestion {
  std::string flags;  // "--cluster 8xH100-80G"
  Scenario scenario;
};
struct ComparedAnswer {
  ComparedQuestion question;
  std::optional<tuner::StrategyResult> row;  // recommended, or the nearest where nothing fits
  Phrase refusal;                            // why there is no row
};

struct ReportData {
  Scenario scenario;
  tuner::TradeOffs trade_offs;
  std::vector<Json> descriptions;    // of trade_offs.points: what was chosen, by key
  bool searched = true;              // false: fit's strategies alone were looked at
  std::int64_t points = 0;           // of the space
  tuner::FitAnswer fit;              // the strategies, each with its best batch
  std::optional<ChosenPlan> chosen;  // nothing where nothing fits
  // The strategies are points of the space too: nothing was said that leaves some of them out.
  bool strategies_count = true;
  tuner::Objective objective = tuner::Objective::throughput;
  double gap = 0.0;
  tuner::CostQuestion cost;
  std::vector<ComparedAnswer> compared;
};

// A page shows all parts of a report, a picture one.
struct ReportParts {
  bool search = true;      // else what fit recommends is chosen
  bool front = true;       // searches under falling ceilings of memory, besides the first
  bool strategies = true;  // of fit
  bool step = true;        // memory and streams through the chosen step
  bool moves = true;       // each knob moved
  bool answers = true;     // why, other sizes, assumptions that are wrong
};

struct ReportOptions {
  tuner::TuneOptions tune;  // of its objectives throughput and memory
  int ceilings = 6;         // searches for the front, besides the first
  bool quick = false;       // without a search: the first answer of fit, and nothing beside it
  ReportParts parts;
  std::function<void(const Phrase&)> on_phase;  // of a terminal: what is being done now
  tuner::CostQuestion cost;
  std::vector<ComparedQuestion> compared;
};

// Throws InputError as resolve() and read_request() do.
ReportData gather_report(const Scenario& scenario, const ReportOptions& options);

// zeroplan.report/1 (docs/report.md), its sentences in the language of `words`; what scripts look
// up by name, and what configurations are written in, is the same in all.
Json to_json(const ReportData& data, const Translation& words);

}  // namespace zeroplan::cli
