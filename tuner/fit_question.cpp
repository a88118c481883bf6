#include "tuner/fit_question.hpp"

#include <utility>

#include "base/diagnostic.hpp"
#include "model/graph/traced_graph.hpp"
#include "model/plan/release_pairs.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/predict.hpp"
#include "simulator/simulate.hpp"
#include "tuner/fit_ranking.hpp"
#include "tuner/packages.hpp"

namespace zeroplan::tuner {
namespace {

const Origin kFit = {"fit", ""};

// PPOTrainer makes its own.
std::optional<OptimizerName> optimizer_of(const Scenario& scenario) {
  if (const ExplicitValue* trainer = scenario.find(ScenarioKey::trainer)) {
    const Json& value = trainer->value;
    const bool named = value.is_string() ? value == Json("ppo") : value.find("ppo") != nullptr;
    if (named) return std::nullopt;
  }
  const ExplicitValue* said = scenario.find(ScenarioKey::optimizer);
  if (said == nullptr) return OptimizerName::adamw;
  return find(kOptimizerNames, std::string_view(said->value.as_string()))
      .value_or(OptimizerName::adamw);
}

// Sizes stand in the scenario alone: a file that fixes others would contradict it.
void drop_batch(DsConfig& config) {
  for (const Knob knob : {Knob::train_batch_size,
                          Knob::train_micro_batch_size_per_gpu,
                          Knob::gradient_accumulation_steps}) {
    config.unset(knob);
  }
}

// Whether nobody said a ds_config.
bool leaves_stage_open(const Scenario& scenario) {
  return scenario.find(ScenarioKey::ds_config) == nullptr;
}

Prepared at_least_stage(const Scenario& scenario, Prepared prepared) {
  DsConfig config;
  config.set(Knob::zero_stage, least_stage(scenario));
  prepared.ds_config = std::make_shared<const DsConfig>(config);
  return prepared;
}

// The question's plan before a strategy is chosen: at the least stage where it is refused at stage
// 3, the default where nobody said a ds_config.
Plan plan_before_strategies(const Scenario& scenario, const Prepared& prepared) {
  if (!leaves_stage_open(scenario)) return resolve(scenario, prepared);
  try {
    return resolve(scenario, prepared);
  } catch (const InputError&) {
    return resolve(scenario, at_least_stage(scenario, prepared));
  }
}

// The question's ways to make a batch. Throws InputError where what was said contradicts itself.
void read_batches(Question& question) {
  Prepared any = question.prepared;
  if (question.base != nullptr) any.ds_config = question.base;
  const Plan plan = plan_before_strategies(question.scenario, any);
  question.batches = batch_choices(said_batch(question.scenario, question.base.get()),
                                   plan.degrees.data,
                                   plan.workload.sequence_length);
}

void drop_said_batch(Question& question, ScenarioKey key, Knob knob) {
  question.scenario.unset(key);
  if (question.base == nullptr) return;
  DsConfig config = *question.base;
  config.unset(knob);
  question.base = std::make_shared<const DsConfig>(config);
}

}  // namespace

Question ask(const Scenario& scenario) {
  Question question;
  question.scenario = scenario;
  question.prepared = prepare(scenario);
  const Prepared& parts = question.prepared;
  keep_traced_batch(question.scenario, *parts.model, kFit);
  keep_from_accumulating(question.scenario,
                         leaves_stage_open(scenario) ? at_least_stage(scenario, parts) : parts,
                         kFit);
  // Says what is wrong with the words of who asks.
  const Plan plan = plan_before_strategies(question.scenario, parts);
  if (scenario.find(ScenarioKey::checkpoint_reentrant) == nullptr) {
    question.reentrant = lighter_reentrance(plan);
  }
  const ExplicitValue* said = scenario.find(ScenarioKey::ds_config);
  if (said != nullptr && !stage_alone(scenario)) {
    question.base = std::make_shared<const DsConfig>(read_ds_config_of(*said));
  }
  read_batches(question);
  return question;
}

Question ask_of(const Plan& plan, const Scenario& scenario) {
  Question question =
      ask(parse_scenario(scenario_document(plan, scenario), "the chosen configuration"));
  question.base_is = strategy_of(plan);
  drop_said_batch(question, ScenarioKey::micro_batch_size, Knob::train_micro_batch_size_per_gpu);
  drop_said_batch(
      question, ScenarioKey::gradient_accumulation_steps, Knob::gradient_accumulation_steps);
  drop_said_batch(question, ScenarioKey::global_batch_size, Knob::train_batch_size);
  const Workload& workload = plan.workload;
  set(question,
      ScenarioKey::global_batch_size,
      Json(workload.micro_batch_size * workload.gradient_accumulation_steps * plan.degrees.data));
  read_batches(question);
  return question;
}

AskedStrategy ask_strategy(const Question& question,
                           const Strategy& strategy,
                           const BatchSizes& batch) {
  Scenario scenario = question.scenario;
  scenario.set(ScenarioKey::activation_checkpointing,
               Json(name(kActivationCheckpointingNames, strategy.checkpointing)),
               kFit);
  if (question.reentrant && strategy.stage == 3) {
    scenario.set(ScenarioKey::checkpoint_reentrant, Json(*question.reentrant), kFit);
  }
  scenario.set(ScenarioKey::micro_batch_size, Json(batch.micro_batch), kFit);
  scenario.set(ScenarioKey::gradient_accumulation_steps, Json(batch.accumulation), kFit);
  scenario.unset(ScenarioKey::global_batch_size);
  const bool as_it_is = question.base_is && same_placement(strategy, *question.base_is);
  DsConfig config = as_it_is ? *question.base
                             : strategy_config(strategy,
                                               question.base.get(),
                                               *question.prepared.model,
                                               optimizer_of(question.scenario),
                                               frontend_of(question.scenario));
  drop_batch(config);
  Prepared prepared = question.prepared;
  prepared.ds_config = std::make_shared<const DsConfig>(std::move(config));
  return {std::move(scenario), std::move(prepared)};
}

Plan plan_strategy(const Question& question, const Strategy& strategy, const BatchSizes& batch) {
  const AskedStrategy asked = ask_strategy(question, strategy, batch);
  Plan plan = resolve(asked.scenario, asked.prepared);
  const Phrase& assumption = question.batches.assumption;
  if (!assumption.empty()) plan.assumptions.push_back(assumption);
  for (Phrase& sentence : sentences_of(chosen_packages(asked.scenario))) {
    plan.assumptions.push_back(std::move(sentence));
  }
  return plan;
}

StepResult likeliest(const Plan& plan, PredictOptions options) {
  options.likeliest_alone = true;
  return predict(plan, options);
}

StepResult played(const Plan& plan,
                  const PredictOptions& options,
                  simulator::SimulationMemo* memo,
                  simulator::KnownRanks* known) {
  return simulator::simulate(
      plan, {.predict = options, .other_networks = false, .memo = memo, .known = known});
}

bool runs(const Plan& plan,
          const PredictOptions& options,
          simulator::SimulationMemo& memo,
          simulator::KnownRanks* known) {
  simulator::SimulateOptions verdict{.predict = options,
                                     .other_networks = false,
                                     .verdict_alone = true,
                                     .stops_at_the_limit = true,
                                     .memo = &memo,
                                     .known = known};
  verdict.predict.likeliest_alone = true;
  return simulator::simulate(plan, verdict).fits;
}

void play_whole(StrategyResult& row,
                const PredictOptions& options,
                simulator::SimulationMemo* memo) {
  row.result = played(row.plan, options, memo, &row.known);
}

void play_if_it_runs(StrategyResult& row,
                     const PredictOptions& options,
                     simulator::SimulationMemo& memo) {
  row.simulated = true;
  const bool surely = row.result.fits && !is_at_limit(row.result);
  if (!surely && !runs(row.plan, options, memo, &row.known)) {
    row.result.fits = false;
    return;
  }
  play_whole(row, options, &memo);
}

void set(Question& question, ScenarioKey key, Json value) {
  question.scenario.set(key, std::move(value), kFit);
}

void set_sequence_length(Question& question, std::int64_t length) {
  set(question, ScenarioKey::sequence_length, Json(length));
  read_batches(question);
}

void take_usual_host(Question& question) {
  Cluster cluster = *question.prepared.cluster;
  cluster.node.host_memory.confidence = Confidence::stated;
  cluster.node.host_memory.relative_sd = 0.0;
  question.prepared.cluster = std::make_shared<const Cluster>(std::move(cluster));
}

void set_nodes(Question& question, std::int64_t nodes) {
  set_gpus(question, nodes, question.prepared.cluster->gpus_per_node());
}

void set_gpus(Question& question, std::int64_t nodes, std::int64_t per_node) {
  Cluster cluster = *question.prepared.cluster;
  cluster.nodes = nodes;
  cluster.node.gpus_per_node = per_node;
  question.prepared.cluster = std::make_shared<const Cluster>(cluster);
  try {
    read_batches(question);
  } catch (const InputError&) {  // a batch that so many ranks cannot share
    drop_said_batch(question, ScenarioKey::global_batch_size, Knob::train_batch_size);
    read_batches(question);
  }
}

std::vector<Strategy> strategies(const Question& question) {
  std::vector<Strategy> all = strategies(question.scenario);
  if (question.prepared.cluster->gpu.shares_host_memory()) std::erase_if(all, offloads_to_host);
  if (!can_checkpoint(*question.prepared.model)) {
    std::erase_if(all, [](const Strategy& strategy) {
      return strategy.checkpointing != ActivationCheckpointing::none;
    });
  }
  for (Strategy& strategy : all) {
    if (offload_of(strategy) == 0) continue;
    strategy.pinned = !question.pageable;
    strategy.small_sub_groups = question.small_sub_groups && strategy.stage == 3;
  }
  return all;
}

Question varied(Question question, const Variation& variation) {
  const auto batch = [&](ScenarioKey key, Knob knob, const Json& value) {
    drop_said_batch(question, ScenarioKey::global_batch_size, Knob::train_batch_size);
    drop_said_batch(question, key, knob);
    set(question, key, value);
  };
  for (const Change& change : variation.changes) {
    if (const Knob* knob = std::get_if<Knob>(&change.key)) {
      if (*knob == Knob::offload_optimizer_pin_memory || *knob == Knob::offload_param_pin_memory) {
        question.pageable = true;
        continue;
      }
      question.small_sub_groups = question.small_sub_groups || *knob == Knob::sub_group_size;
      DsConfig config = question.base != nullptr ? *question.base : DsConfig();
      config.set(*knob, knob_value(*knob, change.value));
      question.base = std::make_shared<const DsConfig>(std::move(config));
      continue;
    }
    const ScenarioKey key = std::get<ScenarioKey>(change.key);
    if (key == ScenarioKey::micro_batch_size) {
      batch(key, Knob::train_micro_batch_size_per_gpu, change.value);
    } else if (key == ScenarioKey::gradient_accumulation_steps) {
      batch(key, Knob::gradient_accumulation_steps, change.value);
    } else {
      set(question, key, change.value);
    }
    if (key == ScenarioKey::model) {
      const Prepared other = prepare(question.scenario);
      question.prepared.model = other.model;
      question.prepared.model_with_fused_experts = other.model_with_fused_experts;
    }
    if (key == ScenarioKey::checkpoint_reentrant) question.reentrant.reset();
  }
  if (variation.host_memory) {
    question.prepared.cluster =
        std::make_shared<const Cluster>(varied(*question.prepared.cluster, variation));
  }
  if (variation.nodes) {
    set_nodes(question, *variation.nodes);
  } else {
    read_batches(question);
  }
  return question;
}

}  // namespace zeroplan::tuner
