// A scenario with one thing changed, planned and simulated again: what explain and the search for
// the smallest change that fits are made of.
//
// Strategy changes (stage, offload) take what belongs to them along, as `fit` does. Batch sizes are
// changed in the workload; a ds_config that fixes them loses those keys. Simulations run in
// parallel; results keep the order of the variations and do not depend on the number of threads.
// Checked by tests/unit/tuner/sensitivity_test.cpp.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/phrase.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/predict.hpp"
#include "model/predict/step_result.hpp"
#include "tuner/deadline.hpp"
#include "tuner/strategies.hpp"

namespace zeroplan::tuner {

// One key of ds_config.json or of the workload, with its new value.
struct Change {
  std::variant<Knob, ScenarioKey> key;
  Json value;
};

// "/zero_optimization/stage" or "--micro-batch-size": how the user says it.
std::string_view spelling(const Change& change);

// Changes that are made together.
struct Variation {
  std::vector<Change> changes;
  std::optional<std::int64_t> nodes = std::nullopt;  // of the cluster
  std::optional<Bytes> host_memory = std::nullopt;   // of a node
};

// Both; one key once: the later change of it replaces the earlier one.
Variation joined(Variation all, const Variation& more);

// "/zero_optimization/stage 2 -> 3", several joined by "; ".
Phrase describe(const Variation& variation, const Plan& base);

// A cluster of other nodes, as a variation asks for them; whoever has so much host memory knows it.
Cluster varied(Cluster cluster, const Variation& variation);
// The scenario's model as a checkpoint in 16 bits, by its name or its document; null for a file.
Json model_in_sixteen_bits(const Scenario& scenario);
// Which of `fit`'s strategies a plan is.
Strategy strategy_of(const Plan& plan);

struct VariedResult {
  std::optional<StepResult> result;  // nothing where the plan is refused, or the deadline was over
  std::string refusal;               // why; empty for the latter
};

class Variations {
 public:
  // Reads the scenario's parts once. `capacity`: of the GPU, where a message states it;
  // `host_is_usual`: where nobody said what host memory a node has, no more than usual, because a
  // message says that it was used up. Throws InputError as resolve() does.
  explicit Variations(const Scenario& scenario,
                      std::optional<Bytes> capacity = {},
                      bool host_is_usual = false);

  const Plan& base() const { return base_; }
  const Scenario& scenario() const { return scenario_; }
  // Throws InputError where the changes contradict each other or the rest.
  Plan plan(const Variation& variation) const;
  std::vector<VariedResult> simulate_all(std::span<const Variation> variations,
                                         const PredictOptions& options,
                                         const Deadline& deadline = Deadline()) const;

 private:
  Scenario scenario_;
  Prepared prepared_;
  DsConfig config_;  // as the user wrote it, or a stage alone
  Plan base_;
};

// What a key has in a plan: an integer, a text, true or false; null where the file says nothing and
// the default is derived.
Json value_of(const Plan& plan, Knob knob);
Json value_of(const Plan& plan, ScenarioKey key);

// A value of a knob from JSON. Precondition: it fits the row's type.
KnobValue knob_value(Knob knob, const Json& value);

}  // namespace zeroplan::tuner
