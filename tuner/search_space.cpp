#include "tuner/search_space.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/diagnostic.hpp"
#include "model/graph/traced_graph.hpp"
#include "model/plan/release_pairs.hpp"
#include "model/plan/trainer.hpp"
#include "model/predict/job_time.hpp"
#include "tuner/knob_effect.hpp"
#include "tuner/packages.hpp"
#include "tuner/variations.hpp"

namespace zeroplan::tuner {
namespace {

const Origin kTune = {"tune", ""};

bool is_batch_key(Knob knob) {
  return knob == Knob::train_batch_size || knob == Knob::train_micro_batch_size_per_gpu ||
         knob == Knob::gradient_accumulation_steps;
}

bool is_strategy_key(Knob knob) {
  return knob == Knob::zero_stage || knob == Knob::offload_optimizer_device ||
         knob == Knob::offload_param_device;
}

KnobSurroundings around(const Strategy& strategy) {
  return {strategy.stage, strategy.offload_optimizer, strategy.offload_parameter};
}

bool same(const KnobValue& a, const KnobValue& b) { return to_json(a) == to_json(b); }

bool holds(const std::vector<KnobValue>& values, const KnobValue& value) {
  return std::any_of(
      values.begin(), values.end(), [&](const KnobValue& other) { return same(other, value); });
}

std::optional<OffloadDevice> device_of(const KnobValue& value) {
  for (const OffloadDevice device :
       {OffloadDevice::none, OffloadDevice::cpu, OffloadDevice::nvme}) {
    if (std::get<std::string>(value) == name(device)) return device;
  }
  return std::nullopt;
}

}  // namespace

SearchSpace::SearchSpace(const Scenario& scenario, const SearchRequest& request)
    : SearchSpace(scenario, request, prepare(scenario)) {}

SearchSpace::SearchSpace(const Scenario& scenario, const SearchRequest& request, Prepared prepared)
    : scenario_(scenario), prepared_(std::move(prepared)) {
  if (const ExplicitValue* said = scenario.find(ScenarioKey::engine)) {
    if (said->value.as_string() != "deepspeed") {
      throw InputError({said->origin.file,
                        said->origin.pointer,
                        "deepspeed, whose knobs are searched",
                        in_quotes(said->value.as_string()),
                        ""});
    }
  }
  if (const ExplicitValue* said = scenario.find(ScenarioKey::ds_config)) {
    base_ = read_ds_config_of(*said);
  }
  Prepared alone = prepared_;
  DsConfig stage;
  stage.set(Knob::zero_stage, least_stage(scenario));
  alone.ds_config = std::make_shared<const DsConfig>(stage);
  keep_traced_batch(scenario_, *alone.model, kTune);
  if (request.accumulations.empty()) keep_from_accumulating(scenario_, alone, kTune);
  const Plan any = resolve(scenario_, alone);
  optimizer_ = any.workload.optimizer;
  if (any.trainer != nullptr && any.trainer->trains_values()) optimizer_.reset();
  deepspeed_ = any.software.deepspeed_release;
  ranks_ = any.degrees.data;
  has_pipeline_ = any.degrees.pipeline > 1;
  tokens_ = zeroplan::tokens_of_a_sequence(any) * static_cast<double>(ranks_) /
            static_cast<double>(any.degrees.world);
  checkpointings_ = request.checkpointings;
  if (checkpointings_.empty()) {
    checkpointings_ = tuner::checkpointings(scenario);
    if (!can_checkpoint(*any.model)) checkpointings_ = {ActivationCheckpointing::none};
    if (checkpointings_.size() == 1) checkpointings_ = {any.workload.activation_checkpointing};
  }
  if (scenario.find(ScenarioKey::checkpoint_reentrant) == nullptr) {
    reentrant_ = lighter_reentrance(any);
  }
  read_batches(request, any.workload.sequence_length);
  read_strategies(request);
}

void SearchSpace::read_batches(const SearchRequest& request, std::int64_t sequence_length) {
  const SaidBatch said = said_batch(scenario_, nullptr);
  const auto values = [](std::vector<std::int64_t> asked, std::optional<std::int64_t> there) {
    if (asked.empty() && there) asked = {*there};
    return asked;
  };
  const std::vector<std::int64_t> micro = values(request.micro_batches, said.micro_batch);
  const std::vector<std::int64_t> steps = values(request.accumulations, said.accumulation);
  std::optional<std::int64_t> global = request.global_batch ? request.global_batch : said.global;
  if (!global && base_) global = batch_of_file(micro.empty() && steps.empty());
  const auto add = [&](std::optional<std::int64_t> m, std::optional<std::int64_t> g) {
    const BatchChoices choices = batch_choices({m, g, global}, ranks_, sequence_length);
    assumed_batch_ = choices.assumption;
    for (const BatchSizes& sizes : choices.sizes) {
      const bool made = !global || sizes.micro_batch * sizes.accumulation * ranks_ == *global;
      const bool micro_said = !m || sizes.micro_batch == *m;
      if (made && micro_said && (!g || sizes.accumulation == *g)) batches_.push_back(sizes);
    }
  };
  const bool divides = !global || *global % ranks_ == 0;
  if (divides && micro.empty() && steps.empty()) add({}, {});
  for (const std::int64_t m : divides ? micro : std::vector<std::int64_t>()) {
    if (steps.empty()) add(m, {});
    for (const std::int64_t g : steps) add(m, g);
  }
  for (const std::int64_t g : divides&& micro.empty() ? steps : std::vector<std::int64_t>()) {
    add({}, g);
  }
  if (!batches_.empty()) return;
  throw InputError(
      {"command line",
       std::string(pointer_of(Knob::train_batch_size)),
       phrase("a batch that micro-batch x accumulation x {} data-parallel ranks can make", ranks_),
       std::to_string(global.value_or(0)),
       phrase("a multiple of {}, or --search micro_batch_size=...", ranks_)});
}

// The global batch that the user's ds_config fixes, or that its sizes make: how it is made is
// searched.
std::optional<std::int64_t> SearchSpace::batch_of_file(bool sizes_count) const {
  const SaidBatch file = said_batch(Scenario(), &*base_);
  if (file.global) return file.global;
  if (!sizes_count || !file.micro_batch || !file.accumulation) return std::nullopt;
  return *file.micro_batch * *file.accumulation * ranks_;
}

// --- strategies and their axes

void SearchSpace::read_strategies(const SearchRequest& request) {
  const Strategy any{0, OffloadDevice::none, OffloadDevice::none, ActivationCheckpointing::none};
  for (const KnobValue& stage : values_of(Knob::zero_stage, any.stage, request)) {
    for (const KnobValue& optimizer : values_of(Knob::offload_optimizer_device, 3, request)) {
      for (const KnobValue& parameter : values_of(Knob::offload_param_device, 3, request)) {
        Strategy strategy{static_cast<int>(std::get<std::int64_t>(stage)),
                          *device_of(optimizer),
                          *device_of(parameter),
                          ActivationCheckpointing::none};
        // Below stage 1 nothing is offloaded, below stage 3 no parameters, and NVMe means the CPU.
        const bool optimizer_goes = strategy.offload_optimizer != OffloadDevice::none;
        const bool parameters_go = strategy.offload_parameter != OffloadDevice::none;
        if (optimizer_ && !does_its_update(strategy, *optimizer_)) continue;
        if (has_pipeline_ && strategy.stage > 1) continue;
        if (prepared_.cluster->gpu.shares_host_memory() && offloads_to_host(strategy)) continue;
        if (strategy.stage < 1 && optimizer_goes) continue;
        if (strategy.stage < 3 && parameters_go) continue;
        if (strategy.stage < 3 && strategy.offload_optimizer == OffloadDevice::nvme) continue;
        add_strategy(strategy, request);
      }
    }
  }
  if (!strategies_.empty()) return;
  throw InputError({"command line",
                    "--fix",
                    "stage and offload that DeepSpeed takes together",
                    left_out_.empty() ? "none that go together" : left_out_.front().reason,
                    ""});
}

// The grid, DeepSpeed's default and the user's own value; what was said about the key instead.
std::vector<KnobValue> SearchSpace::values_of(Knob knob,
                                              int stage,
                                              const SearchRequest& request) const {
  if (const auto said = request.knobs.find(knob); said != request.knobs.end()) {
    return said->second;
  }
  std::vector<KnobValue> values;
  const auto add = [&](const KnobValue& value) {
    const bool there =
        !std::holds_alternative<Unset>(value) && !std::holds_alternative<Auto>(value);
    if (there && !holds(values, value) && is_possible(knob, value, *prepared_.cluster)) {
      values.push_back(value);
    }
  };
  if (!is_strategy_key(knob)) add(default_value(knob, stage, deepspeed_));
  for (const KnobValue& value : search_grid(knob)) add(value);
  if (base_ && !is_strategy_key(knob)) add(base_->value(knob));
  return values;
}

// Limits that the model never reaches are one: the first of them, which is the default where that
// is one. Between two uses of a weight in a micro-step lie at most two passes over the model.
void SearchSpace::drop_unreached(Axis& axis) const {
  const bool limits =
      axis.knob == Knob::stage3_max_live_parameters || axis.knob == Knob::stage3_max_reuse_distance;
  if (!limits) return;
  const std::int64_t most = 2 * count_parameters(*prepared_.model).total.count();
  bool kept = false;
  std::erase_if(axis.values, [&](const KnobValue& value) {
    const auto* limit = std::get_if<std::int64_t>(&value);
    if (limit == nullptr || *limit < most) return false;
    return std::exchange(kept, true);
  });
}

void SearchSpace::add_strategy(const Strategy& strategy, const SearchRequest& request) {
  StrategySpace space;
  space.strategy = strategy;
  // Less offload is simpler than any choice of other knobs.
  space.cost = (strategy.stage != 0 ? 1 : 0) + static_cast<int>(kMostAxes) * offload_of(strategy);
  for (const KnobRole role :
       {KnobRole::step, KnobRole::other, KnobRole::gather, KnobRole::reduce}) {
    for (const KnobRow& row : knob_rows()) {
      if (is_batch_key(row.id) || is_strategy_key(row.id) || row.role != role) continue;
      const bool asked = request.knobs.contains(row.id);
      if (!asked && search_grid(row.id).empty()) continue;
      if (!has_effect(row.id, around(strategy))) continue;
      Axis axis{row.id, role, values_of(row.id, strategy.stage, request), {}};
      drop_unreached(axis);
      const KnobValue plain = default_value(row.id, strategy.stage, deepspeed_);
      for (const KnobValue& value : axis.values) axis.cost.push_back(same(value, plain) ? 0 : 1);
      const bool default_alone = axis.values.size() == 1 && axis.cost.front() == 0;
      if (default_alone && !asked) continue;
      ZP_CHECK(space.axes.size() + 1 < kMostAxes, "more axes than a point has room for");
      space.axes.push_back(std::move(axis));
    }
  }
  drop_refused(space);
}

DsConfig SearchSpace::config_of(const Strategy& strategy, const std::vector<Axis>& axes) const {
  DsConfig config = strategy_config(
      strategy, base_ ? &*base_ : nullptr, *prepared_.model, optimizer_, frontend_of(scenario_));
  for (const Axis& axis : axes) config.set(axis.knob, axis.values.front());
  for (const Knob knob : {Knob::train_batch_size,
                          Knob::train_micro_batch_size_per_gpu,
                          Knob::gradient_accumulation_steps}) {
    config.unset(knob);
  }
  return config;
}

Phrase SearchSpace::refusal(const DsConfig& config) const {
  try {
    return startup_refusal(plan_of(config, batches_.front(), checkpointings_.front()));
  } catch (const InputError& error) {
    const Diagnostic& why = error.diagnostics().front();
    return phrase("{}: {}", why.pointer, phrase("expected {}, got {}", why.expected, why.got));
  }
}

// Each value is judged beside the first ones of all other axes.
void SearchSpace::drop_refused(StrategySpace& space) {
  const auto frames = static_cast<std::int64_t>(checkpointings_.size()) *
                      static_cast<std::int64_t>(batches_.size());
  for (const Axis& axis : space.axes) {
    space.points *= static_cast<std::int64_t>(axis.values.size());
  }
  const auto leave_out = [&](const Phrase& reason, std::int64_t points, const DsConfig& config) {
    left_out_.push_back({phrase("DeepSpeed refuses: {}", reason), points * frames, emit(config)});
  };
  space.first = config_of(space.strategy, space.axes);
  const DsConfig& first = space.first;
  if (const Phrase why = refusal(first); !why.empty()) {
    leave_out(why, space.points, first);
    return;
  }
  for (Axis& axis : space.axes) {
    for (std::size_t i = axis.values.size(); i-- > 1;) {
      DsConfig config = first;
      config.set(axis.knob, axis.values[i]);
      const Phrase why = refusal(config);
      if (why.empty()) continue;
      const std::int64_t lost = space.points / static_cast<std::int64_t>(axis.values.size());
      leave_out(why, lost, config);
      space.points -= lost;
      axis.values.erase(axis.values.begin() + static_cast<std::ptrdiff_t>(i));
      axis.cost.erase(axis.cost.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  strategies_.push_back(std::move(space));
}

// --- points

Phrase startup_refusal(const Plan& plan) {
  // As resolve() says it (model/plan/resolve.cpp, report_startup).
  constexpr std::string_view kRefused = "DeepSpeed will not start: ";
  for (const Phrase& warning : plan.warnings) {
    std::string_view key = warning.key();
    if (!key.ends_with(Phrase::kSlot)) continue;
    key.remove_suffix(1);
    if (key.ends_with(kRefused)) return warning.arguments().back();
  }
  return "";
}

std::int64_t SearchSpace::points() const {
  std::int64_t sum = 0;
  for (const StrategySpace& strategy : strategies_) sum += strategy.points;
  return sum * static_cast<std::int64_t>(checkpointings_.size()) *
         static_cast<std::int64_t>(batches_.size());
}

int SearchSpace::cost(const Point& point) const {
  const StrategySpace& space = strategies_[static_cast<std::size_t>(point.strategy)];
  int cost = space.cost;
  if (checkpointings_[static_cast<std::size_t>(point.checkpointing)] !=
      ActivationCheckpointing::none) {
    ++cost;
  }
  for (std::size_t a = 0; a < space.axes.size(); ++a) cost += space.axes[a].cost[point.at[a]];
  return cost;
}

DsConfig SearchSpace::config_of(const Point& point) const {
  const StrategySpace& space = strategies_[static_cast<std::size_t>(point.strategy)];
  DsConfig config = space.first;
  for (std::size_t a = 0; a < space.axes.size(); ++a) {
    if (point.at[a] == 0) continue;
    config.set(space.axes[a].knob, space.axes[a].values[point.at[a]]);
  }
  return config;
}

Plan SearchSpace::plan(const Point& point) const {
  return plan_of(config_of(point),
                 batches_[static_cast<std::size_t>(point.batch)],
                 checkpointings_[static_cast<std::size_t>(point.checkpointing)]);
}

Plan SearchSpace::plan_with(const Point& point, ScenarioKey key, std::int64_t value) const {
  const ExplicitValue changed{Json(value), kTune};
  return plan_of(config_of(point),
                 batches_[static_cast<std::size_t>(point.batch)],
                 checkpointings_[static_cast<std::size_t>(point.checkpointing)],
                 &changed,
                 key);
}

Plan SearchSpace::plan_of(const DsConfig& config,
                          const BatchSizes& batch,
                          ActivationCheckpointing kind,
                          const ExplicitValue* changed,
                          ScenarioKey key) const {
  Scenario scenario = scenario_;
  scenario.set(ScenarioKey::micro_batch_size, Json(batch.micro_batch), kTune);
  scenario.set(ScenarioKey::gradient_accumulation_steps, Json(batch.accumulation), kTune);
  scenario.set(ScenarioKey::activation_checkpointing,
               Json(name(kActivationCheckpointingNames, kind)),
               kTune);
  scenario.unset(ScenarioKey::global_batch_size);
  if (reentrant_ && config.integer(Knob::zero_stage) == 3) {
    scenario.set(ScenarioKey::checkpoint_reentrant, Json(*reentrant_), kTune);
  }
  if (changed != nullptr) scenario.set(key, changed->value, changed->origin);
  Prepared prepared = prepared_;
  prepared.ds_config = std::make_shared<const DsConfig>(config);
  Plan plan = resolve(scenario, prepared);
  if (!assumed_batch_.empty()) plan.assumptions.push_back(assumed_batch_);
  for (Phrase& sentence : sentences_of(chosen_packages(scenario_))) {
    plan.assumptions.push_back(std::move(sentence));
  }
  return plan;
}

Json SearchSpace::describe(const Point& point) const {
  const StrategySpace& space = strategies_[static_cast<std::size_t>(point.strategy)];
  const BatchSizes& batch = batches_[static_cast<std::size_t>(point.batch)];
  Json object =
      Json::object({{"stage", space.strategy.stage},
                    {"offload_optimizer", name(space.strategy.offload_optimizer)},
                    {"offload_param", name(space.strategy.offload_parameter)},
                    {"activation_checkpointing",
                     name(kActivationCheckpointingNames,
                          checkpointings_[static_cast<std::size_t>(point.checkpointing)])},
                    {"micro_batch_size", batch.micro_batch},
                    {"gradient_accumulation_steps", batch.accumulation}});
  for (std::size_t a = 0; a < space.axes.size(); ++a) {
    const Axis& axis = space.axes[a];
    if (axis.cost[point.at[a]] == 0) continue;
    object[pointer_of(axis.knob)] = to_json(axis.values[point.at[a]]);
  }
  return object;
}

}  // namespace zeroplan::tuner
