// A question of `fit`, with its parts read once so that planning it in many variations is cheap,
// and its variations.
#pragma once

#include <memory>
#include <optional>

#include "model/plan/batch.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/predict.hpp"
#include "simulator/simulation_memo.hpp"
#include "tuner/fit_answer.hpp"
#include "tuner/missing_rows.hpp"
#include "tuner/strategies.hpp"
#include "tuner/variations.hpp"

namespace zeroplan::tuner {

struct Question {
  Scenario scenario;
  Prepared prepared;
  std::shared_ptr<const DsConfig> base;  // the user's ds_config, or null
  BatchChoices batches;                  // ways to make a step's batch
  std::optional<bool> reentrant;         // checkpointing under stage 3, where nobody said
  // Of its answer, and of those of its variations, which share it.
  std::shared_ptr<MissingRows> missing = std::make_shared<MissingRows>();
  // Simulations made for it and for them.
  std::shared_ptr<simulator::SimulationMemo> memo = std::make_shared<simulator::SimulationMemo>();
  // Where `base` sets up a placement as a plan has it: strategies with that keep its file as it is.
  std::optional<Strategy> base_is;
  // Of what is offloaded, whatever the user's file says of it (Strategy).
  bool pageable = false;
  bool small_sub_groups = false;
};

// The strategies that the question may be answered with.
std::vector<Strategy> strategies(const Question& question);

// Throws InputError as resolve() does, and for a batch that the ranks cannot share.
Question ask(const Scenario& scenario);

// What may be asked of a plan that was found elsewhere: its keys stand, its step's batch is made in
// any way. Throws InputError as ask() does.
Question ask_of(const Plan& plan, const Scenario& scenario);

// What a strategy with a batch asks resolve(): the scenario, and its parts with the strategy's
// ds_config.
struct AskedStrategy {
  Scenario scenario;
  Prepared prepared;
};
AskedStrategy ask_strategy(const Question& question,
                           const Strategy& strategy,
                           const BatchSizes& batch);

// The plan of a strategy with one of the question's batches, or another.
Plan plan_strategy(const Question& question, const Strategy& strategy, const BatchSizes& batch);

// What a search by the analytic estimate asks: does it fit, and the likeliest speed.
StepResult likeliest(const Plan& plan, PredictOptions options);

// The analytic estimate finds, the simulator decides.
StepResult played(const Plan& plan,
                  const PredictOptions& options,
                  simulator::SimulationMemo* memo = nullptr,
                  simulator::KnownRanks* known = nullptr);

// Where nobody said what host memory a node has: the usual amount, and no more.
void take_usual_host(Question& question);

// Whether it fits, simulated no further than that needs.
bool runs(const Plan& plan,
          const PredictOptions& options,
          simulator::SimulationMemo& memo,
          simulator::KnownRanks* known = nullptr);

// A row as simulate() has it.
void play_whole(StrategyResult& row,
                const PredictOptions& options,
                simulator::SimulationMemo* memo);

// A row of the analytic estimate, simulated: as simulate() has it where it fits.
void play_if_it_runs(StrategyResult& row,
                     const PredictOptions& options,
                     simulator::SimulationMemo& memo);

// --- variations: the batch follows, except where it was said ---
void set_nodes(Question& question, std::int64_t nodes);
// So many GPUs of each of so many nodes.
void set_gpus(Question& question, std::int64_t nodes, std::int64_t per_node);
void set_sequence_length(Question& question, std::int64_t length);
void set(Question& question, ScenarioKey key, Json value);
// Throws InputError where the changes contradict each other or the rest.
Question varied(Question question, const Variation& variation);

}  // namespace zeroplan::tuner
