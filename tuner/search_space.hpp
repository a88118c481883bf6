// The space of a search: stage x offload x checkpointing x batch x the knobs that act there, each
// with the values of its grid (model/knobs).
//
// In: a scenario and what was said about single keys. A value that the command line fixes is no
// choice; DeepSpeed's default and a value of the user's own ds_config join a knob's grid. What
// DeepSpeed would refuse, and values that the machine cannot have, are left out and counted. Out:
// points, as indices, and the plan of each.
//
// A knob without effect at a point's stage and offload is no axis there, so that points that differ
// in it alone are one point. Checked by tests/unit/tuner/search_space_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "model/plan/batch.hpp"
#include "model/plan/plan.hpp"
#include "tuner/search_request.hpp"
#include "tuner/strategies.hpp"

namespace zeroplan::tuner {

// What a knob decides, for the bounds of a search (search_bounds.hpp).
struct Axis {
  Knob knob{};
  KnobRole role = KnobRole::other;
  std::vector<KnobValue> values;   // the simplest first: DeepSpeed's default where it is there
  std::vector<std::uint8_t> cost;  // of each value: 0 for the default, 1 for all others
};

// One stage with one placement of optimizer and parameters, and the axes that act there.
struct StrategySpace {
  Strategy strategy;        // its checkpointing stands for nothing
  int cost = 0;             // knobs that differ from the default
  std::vector<Axis> axes;   // by role
  DsConfig first;           // with all axes at their first value
  std::int64_t points = 1;  // of all axes together
};

inline constexpr std::size_t kMostAxes = 28;

// Why DeepSpeed would not start with a plan's ds_config; empty where it would.
Phrase startup_refusal(const Plan& plan);

// Indices into the space's lists; of axes: into Axis::values.
struct Point {
  std::int32_t strategy = 0;
  std::int32_t checkpointing = 0;
  std::int32_t batch = 0;
  std::array<std::uint8_t, kMostAxes> at{};
  friend auto operator<=>(const Point&, const Point&) = default;
};

// Values that were left out before the search.
struct LeftOut {
  Phrase reason;
  std::int64_t points = 0;
  Json sample;
};

class SearchSpace {
 public:
  // Throws InputError as resolve() does, for an engine other than DeepSpeed, and for a global batch
  // that no micro-batch makes.
  SearchSpace(const Scenario& scenario, const SearchRequest& request);
  // The same questions on another cluster.
  SearchSpace(const Scenario& scenario, const SearchRequest& request, Prepared prepared);

  const std::vector<StrategySpace>& strategies() const { return strategies_; }
  const std::vector<ActivationCheckpointing>& checkpointings() const { return checkpointings_; }
  const std::vector<BatchSizes>& batches() const { return batches_; }
  const std::vector<LeftOut>& left_out() const { return left_out_; }
  const Scenario& scenario() const { return scenario_; }
  const Prepared& prepared() const { return prepared_; }

  std::int64_t points() const;
  // Of one data-parallel rank's micro-batch of one sequence, per GPU of the job; those of samples
  // alone where micro-batches are padded to their longest (model/predict/job_time.hpp).
  double tokens_of_a_sequence() const { return tokens_; }

  // Throws InputError where the values contradict each other.
  Plan plan(const Point& point) const;
  // The same with another micro-batch or sequence length.
  Plan plan_with(const Point& point, ScenarioKey key, std::int64_t value) const;
  // Knobs that differ from DeepSpeed's default, checkpointing among them: the smaller is simpler.
  int cost(const Point& point) const;
  // What was chosen, by key: for a sample of a tally.
  Json describe(const Point& point) const;

 private:
  void read_batches(const SearchRequest& request, std::int64_t sequence_length);
  std::optional<std::int64_t> batch_of_file(bool sizes_count) const;
  void read_strategies(const SearchRequest& request);
  void add_strategy(const Strategy& strategy, const SearchRequest& request);
  std::vector<KnobValue> values_of(Knob knob, int stage, const SearchRequest& request) const;
  void drop_unreached(Axis& axis) const;
  Phrase refusal(const DsConfig& config) const;
  DsConfig config_of(const Point& point) const;
  Plan plan_of(const DsConfig& config,
               const BatchSizes& batch,
               ActivationCheckpointing kind,
               const ExplicitValue* changed = nullptr,
               ScenarioKey key = ScenarioKey::micro_batch_size) const;
  DsConfig config_of(const Strategy& strategy, const std::vector<Axis>& axes) const;
  void drop_refused(StrategySpace& space);

  Scenario scenario_;
  Prepared prepared_;
  std::optional<DsConfig> base_;  // the user's
  std::optional<OptimizerName> optimizer_ = OptimizerName::adamw;
  Version deepspeed_;          // whose defaults count
  std::int64_t ranks_ = 1;     // data-parallel
  bool has_pipeline_ = false;  // which runs with stage 0 or 1
  double tokens_ = 0.0;
  std::vector<StrategySpace> strategies_;
  std::vector<ActivationCheckpointing> checkpointings_;
  std::vector<BatchSizes> batches_;
  Phrase assumed_batch_;           // a sentence, where nobody said the batch
  std::optional<bool> reentrant_;  // checkpointing under stage 3, where nobody said
  std::vector<LeftOut> left_out_;
};

}  // namespace zeroplan::tuner
