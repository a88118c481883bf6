#include "cli/rehearsal_work.hpp"

#include <vector>

#include "cli/table.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/step/step_graph.hpp"
#include "rehearsal/counted_work.hpp"
#include "simulator/planned_ranks.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan::cli {
namespace {

std::optional<simulator::WorkByPhase> rehearsed_work(const Rehearsed& rehearsed) {
  for (const rehearsal::RunRecord& run : rehearsed.runs) {
    for (const rehearsal::ProcessRecord& process : run.processes) {
      if (!process.work.calls.empty()) return rehearsal::count_last_step(process.work);
    }
  }
  return std::nullopt;
}

// The program that the prediction played, of the rank that was rehearsed.
std::optional<simulator::WorkByPhase> predicted_work(const Rehearsed& rehearsed,
                                                     const Prediction& prediction) {
  if (!prediction.result) return std::nullopt;
  const Plan plan = resolve(parse_scenario(prediction.scenario.document, "what ran"));
  if (!simulator::is_simulated(plan)) return std::nullopt;
  const simulator::RankProgram rank =
      simulator::write_rank_program(plan, step_graph(plan), static_cast<int>(rehearsed.rank()));
  return count_work(rank.program, rank.steady);
}

}  // namespace

RehearsedWork work_of(const Rehearsed& rehearsed, const Prediction& prediction) {
  RehearsedWork work;
  work.rehearsed = rehearsed_work(rehearsed);
  if (!work.rehearsed) {
    work.problem = "two steps are needed, of which the second is counted";
    return work;
  }
  work.predicted = predicted_work(rehearsed, prediction);
  if (!work.predicted) work.problem = "no simulated program to hold it against";
  return work;
}

Json to_json(const RehearsedWork& work) {
  Json document = Json::object();
  document["rehearsed"] = work.rehearsed ? to_json(*work.rehearsed) : Json();
  document["predicted"] = work.predicted ? to_json(*work.predicted) : Json();
  if (!work.problem.empty()) document["problem"] = work.problem.english();
  return document;
}

std::string work_text(const RehearsedWork& work, const Translation& words) {
  if (!work.problem.empty()) return "\n" + words.text(phrase("work of a step: {}\n", work.problem));
  const std::vector<simulator::WorkDifference> found =
      simulator::differences(*work.rehearsed, *work.predicted);
  if (found.empty()) {
    return "\n" + words.text("the simulated step puts the same work on the GPU\n");
  }
  std::vector<std::vector<Phrase>> cells;
  for (const simulator::WorkDifference& difference : found) {
    cells.push_back({std::string(name(kPhaseNames, difference.phase)),
                     difference.what,
                     std::to_string(difference.first),
                     std::to_string(difference.second)});
  }
  return "\n" + table({{"phase"},
                       {"work that differs"},
                       {"rehearsed", Align::right},
                       {"predicted", Align::right}},
                      cells,
                      words);
}

}  // namespace zeroplan::cli
