#include "tuner/fit.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "model/engine/fetch_coordinator.hpp"
#include "model/hardware/cluster.hpp"
#include "model/parallel_for.hpp"
#include "simulator/simulate.hpp"
#include "simulator/simulation_memo.hpp"
#include "tuner/headroom.hpp"
#include "tuner/knob_effect.hpp"

namespace zeroplan {
namespace {

const Origin kFit = {"fit", ""};

// A scenario with its parts read once, so that planning it in many variations is cheap.
struct Question {
  Scenario scenario;
  Prepared prepared;
  std::shared_ptr<const DsConfig> base;  // the user's ds_config, or null
  std::map<Knob, KnobValue> on_top;      // of every strategy that offloads something
};

Question ask(const Scenario& scenario) {
  Question question{scenario, prepare(scenario), nullptr, {}};
  if (const Said* said = scenario.find(ScenarioKey::ds_config)) {
    question.base = std::make_shared<const DsConfig>(read_ds_config_of(*said));
  }
  return question;
}

OptimizerName optimizer_of(const Scenario& scenario) {
  const Said* said = scenario.find(ScenarioKey::optimizer);
  if (said == nullptr) return OptimizerName::adamw;
  return find(kOptimizerNames, std::string_view(said->value.as_string()))
      .value_or(OptimizerName::adamw);
}

Plan plan_strategy(const Question& question, const Strategy& strategy) {
  Scenario scenario = question.scenario;
  scenario.set(ScenarioKey::activation_checkpointing,
               Json(name(kActivationCheckpointingNames, strategy.checkpointing)),
               kFit);
  DsConfig config = strategy_config(
      strategy, question.base.get(), *question.prepared.model, optimizer_of(question.scenario));
  for (const auto& [knob, value] : question.on_top) {
    const KnobSurroundings around{
        strategy.stage, strategy.offload_optimizer, strategy.offload_parameter};
    if (has_effect(knob, around)) config.set(knob, value);
  }
  Prepared prepared = question.prepared;
  prepared.ds_config = std::make_shared<const DsConfig>(std::move(config));
  return resolve(scenario, prepared);
}

// What a search by the closed form asks: does it fit, and the likeliest speed.
StepResult likeliest(const Plan& plan, PredictOptions options) {
  options.likeliest_alone = true;
  return predict(plan, options);
}

// The closed form finds, the simulator decides.
StepResult played(const Plan& plan, const PredictOptions& options, SimulationMemo* memo = nullptr) {
  return simulate(plan, {.predict = options, .other_networks = false, .memo = memo});
}

// Strategies with equal programs are simulated once: stages 1 and 2 often have them.
void play_all(std::vector<StrategyResult>& results, const PredictOptions& options) {
  SimulationMemo memo;
  parallel_for(results.size(), machine_threads(), [&](std::size_t i) {
    results[i].result = played(results[i].plan, options, &memo);
  });
}

// Higher throughput first; within half a percent the configuration with fewer knobs.
bool better(const StrategyResult& a, const StrategyResult& b) {
  const double speed_a = a.result.step.tokens_per_second_per_gpu;
  const double speed_b = b.result.step.tokens_per_second_per_gpu;
  constexpr double kTie = 0.005;
  if (std::abs(speed_a - speed_b) > kTie * std::max(speed_a, speed_b)) return speed_a > speed_b;
  return non_default_knobs(a.plan.ds_config) < non_default_knobs(b.plan.ds_config);
}

std::optional<std::size_t> best_of(const std::vector<StrategyResult>& results) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].result.fits) continue;
    if (!best || better(results[i], results[*best])) best = i;
  }
  return best;
}

// Strategies that need the same memory at the same speed are one to the reader.
bool same_numbers(const StrategyResult& a, const StrategyResult& b) {
  return a.result.gpu.peak_total == b.result.gpu.peak_total &&
         a.result.host.peak == b.result.host.peak &&
         a.result.step.tokens_per_second_per_gpu == b.result.step.tokens_per_second_per_gpu;
}

// The next best that fit, apart from `chosen`.
std::vector<std::size_t> runners_up(const std::vector<StrategyResult>& results,
                                    std::size_t chosen) {
  constexpr std::size_t kMost = 2;
  std::vector<std::size_t> ranked;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (i != chosen && results[i].result.fits) ranked.push_back(i);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [&](std::size_t a, std::size_t b) {
    return results[a].result.step.tokens_per_second_per_gpu >
           results[b].result.step.tokens_per_second_per_gpu;
  });
  std::vector<std::size_t> shown;
  for (const std::size_t candidate : ranked) {
    const bool known = same_numbers(results[candidate], results[chosen]) ||
                       std::any_of(shown.begin(), shown.end(), [&](std::size_t other) {
                         return same_numbers(results[candidate], results[other]);
                       });
    if (!known && shown.size() < kMost) shown.push_back(candidate);
  }
  return shown;
}

// Without results.
std::vector<StrategyResult> plan_all(const Question& question) {
  std::vector<StrategyResult> plans;
  for (const Strategy& strategy : strategies(question.scenario)) {
    plans.push_back({strategy, plan_strategy(question, strategy), {}});
  }
  return plans;
}

std::vector<StrategyResult> predict_all(const Question& question, const PredictOptions& options) {
  std::vector<StrategyResult> results = plan_all(question);
  for (StrategyResult& row : results) row.result = likeliest(row.plan, options);
  return results;
}

// The best strategy of a changed question, if any fits.
std::optional<StrategyResult> best_strategy(const Question& question,
                                            const PredictOptions& options) {
  std::vector<StrategyResult> results = predict_all(question, options);
  const auto best = best_of(results);
  if (!best) return std::nullopt;
  return std::move(results[*best]);
}

// --- variations
// ----------------------------------------------------------------------------------------

void set_integer(Question& question, ScenarioKey key, std::int64_t value) {
  question.scenario.set(key, Json(value), kFit);
}

// The micro-batch is set by the scenario alone: a file that fixes batch sizes would contradict it.
void set_micro_batch(Question& question, std::int64_t micro_batch) {
  set_integer(question, ScenarioKey::micro_batch_size, micro_batch);
  if (question.base == nullptr) return;
  DsConfig config = *question.base;
  config.unset(Knob::train_batch_size);
  config.unset(Knob::train_micro_batch_size_per_gpu);
  question.base = std::make_shared<const DsConfig>(config);
}

void set_nodes(Question& question, std::int64_t nodes) {
  Cluster cluster = *question.prepared.cluster;
  cluster.nodes = nodes;
  question.prepared.cluster = std::make_shared<const Cluster>(cluster);
  if (question.base == nullptr) return;
  DsConfig config = *question.base;
  config.unset(Knob::train_batch_size);  // the number of ranks changed
  question.base = std::make_shared<const DsConfig>(config);
}

Headroom headroom_of(const Question& question,
                     const StrategyResult& chosen,
                     const PredictOptions& options) {
  const auto fits = [&](const Question& changed, bool play) {
    const Plan plan = plan_strategy(changed, chosen.strategy);
    if (!play) return likeliest(plan, options).fits;
    SimulateOptions verdict{.predict = options,
                            .other_networks = false,
                            .verdict_alone = true,
                            .stops_at_the_limit = true};
    verdict.predict.likeliest_alone = true;
    return simulate(plan, verdict).fits;
  };
  const Workload& workload = chosen.plan.workload;
  const std::int64_t quanta =
      std::max<std::int64_t>(1, sequence_limit(*question.prepared.model) / kSequenceQuantum);
  Headroom headroom;
  const auto find_longest = [&] {
    const std::int64_t longest = largest_played(
        workload.sequence_length / kSequenceQuantum, quanta, [&](std::int64_t n, bool play) {
          Question changed = question;
          set_integer(changed, ScenarioKey::sequence_length, n * kSequenceQuantum);
          return fits(changed, play);
        });
    headroom.longest_sequence = std::max(longest * kSequenceQuantum, workload.sequence_length);
  };
  const auto find_largest = [&] {
    headroom.largest_micro_batch = largest_played(
        workload.micro_batch_size, kMostMicroBatch, [&](std::int64_t micro_batch, bool play) {
          Question changed = question;
          set_micro_batch(changed, micro_batch);
          return fits(changed, play);
        });
  };
  parallel_for(2, 2, [&](std::size_t which) { which == 0 ? find_longest() : find_largest(); });
  return headroom;
}

// --- remedies
// --------------------------------------------------------------------------------------------

struct RemedySearch {
  const Question& question;
  const PredictOptions& options;
  const StrategyResult& example;  // any strategy of the question: its resolved workload
  std::vector<Remedy> found;

  void keep(const std::string& change, std::optional<StrategyResult> best) {
    if (!best) return;
    best->result = played(best->plan, options);
    if (best->result.fits) found.push_back({change, std::move(*best)});
  }
};

void try_checkpointing(RemedySearch& search) {
  const Said* said = search.question.scenario.find(ScenarioKey::activation_checkpointing);
  if (said == nullptr || said->value.as_string() == "full") return;
  Question changed = search.question;
  changed.scenario.unset(ScenarioKey::activation_checkpointing);
  search.keep("use full activation checkpointing", best_strategy(changed, search.options));
}

// Reentrant checkpointing keeps frozen weights gathered under stage 3 (gather_timeline.hpp).
void try_not_reentrant(RemedySearch& search) {
  const Plan& plan = search.example.plan;
  if (plan.workload.method == Method::full || !plan.workload.checkpoint_reentrant ||
      !FetchCoordinator::holds_recomputed_weights(plan.engine.version)) {
    return;
  }
  Question changed = search.question;
  changed.scenario.set(ScenarioKey::checkpoint_reentrant, Json(false), kFit);
  search.keep("checkpoint with use_reentrant=False (--checkpoint-reentrant false)",
              best_strategy(changed, search.options));
}

void try_micro_batch(RemedySearch& search) {
  const std::int64_t now = search.example.plan.workload.micro_batch_size;
  for (std::int64_t micro_batch = now / 2; micro_batch >= 1; micro_batch /= 2) {
    Question changed = search.question;
    set_micro_batch(changed, micro_batch);
    auto best = best_strategy(changed, search.options);
    if (!best) continue;
    search.keep(
        "use micro-batch " + std::to_string(micro_batch) + " instead of " + std::to_string(now),
        std::move(best));
    return;
  }
}

void try_shorter_sequences(RemedySearch& search) {
  const std::int64_t now = search.example.plan.workload.sequence_length;
  for (std::int64_t length = now / 2; length >= kSequenceQuantum; length /= 2) {
    Question changed = search.question;
    set_integer(changed, ScenarioKey::sequence_length, length);
    auto best = best_strategy(changed, search.options);
    if (!best) continue;
    search.keep("shorten sequences to " + std::to_string(length) + " tokens (from " +
                    std::to_string(now) + ")",
                std::move(best));
    return;
  }
}

void try_half_precision(RemedySearch& search) {
  if (search.example.plan.workload.precision != Precision::fp32) return;
  const bool bf16 = search.question.prepared.cluster->gpu.bf16_supported;
  Question changed = search.question;
  changed.scenario.set(ScenarioKey::precision, Json(bf16 ? "bf16" : "fp16"), kFit);
  if (changed.base != nullptr) {
    DsConfig config = *changed.base;
    config.set(Knob::bf16_enabled, bf16);
    config.set(Knob::fp16_enabled, !bf16);
    changed.base = std::make_shared<const DsConfig>(config);
  }
  search.keep(std::string("train in ") + (bf16 ? "bf16" : "fp16") + " instead of fp32",
              best_strategy(changed, search.options));
}

// Knobs that spare host memory and cost speed alone: copies from memory that is not pinned (PyTorch
// rounds pinned blocks up to powers of two), and smaller sub-groups, of which NVMe's pool holds
// four and more.
void try_leaner_offload(RemedySearch& search) {
  const std::map<Knob, KnobValue> unpinned = {{Knob::offload_optimizer_pin_memory, false},
                                              {Knob::offload_param_pin_memory, false}};
  const std::map<Knob, KnobValue> smaller = {{Knob::sub_group_size, std::int64_t{10'000'000}}};
  std::map<Knob, KnobValue> both = unpinned;
  both.insert(smaller.begin(), smaller.end());
  const std::pair<const char*, const std::map<Knob, KnobValue>&> attempts[] = {
      {"offload with pin_memory false", unpinned},
      {"use a sub_group_size of 1e7", smaller},
      {"offload with pin_memory false and a sub_group_size of 1e7", both}};
  for (const auto& [change, knobs] : attempts) {
    Question changed = search.question;
    changed.on_top = knobs;
    const std::size_t before = search.found.size();
    search.keep(change, best_strategy(changed, search.options));
    if (search.found.size() > before) return;
  }
}

// The strategy that would do with the least host memory, and that much.
void try_more_host_memory(RemedySearch& search) {
  Question changed = search.question;
  Cluster cluster = *changed.prepared.cluster;
  const Bytes now = cluster.node.host_memory.value;
  const auto with = [&](Bytes memory) {
    cluster.node.host_memory.value = memory;
    cluster.node.host_memory.relative_sd = 0.0;  // whoever has it knows
    changed.prepared.cluster = std::make_shared<const Cluster>(cluster);
    return predict_all(changed, search.options);
  };
  Bytes least = Bytes::infinite();
  for (const StrategyResult& result : with(Bytes::infinite())) {
    if (result.result.fits) least = std::min(least, result.result.host.peak);
  }
  if (least.is_infinite()) return;
  // The spread of the prediction asks for more than its mean: a tenth, a quarter, or half as much.
  for (const double margin : {1.1, 1.25, 1.5}) {
    constexpr double kSpare = 16.0;  // room for the system and page cache, in GiB
    const auto gib = static_cast<std::int64_t>(std::ceil(least.gib() * margin + kSpare));
    const Bytes enough = Bytes::gib(round_up(gib, 16));
    if (enough <= now) continue;
    std::vector<StrategyResult> results = with(enough);
    const auto best = best_of(results);
    if (!best) continue;
    search.keep("have " + std::to_string(enough.count() >> 30) +
                    " GiB of host memory per node instead of " +
                    std::to_string(std::llround(now.gib())),
                std::move(results[*best]));
    return;
  }
}

void try_more_nodes(RemedySearch& search) {
  const Cluster& cluster = *search.question.prepared.cluster;
  constexpr std::int64_t kMostTimes = 64;
  const auto with = [&](std::int64_t nodes) {
    Question changed = search.question;
    set_nodes(changed, nodes);
    return best_strategy(changed, search.options);
  };
  const std::int64_t most_times = std::min(kMostTimes, kMostGpus / cluster.total_gpus());
  for (std::int64_t times = 2; times <= most_times; times *= 2) {
    if (!with(cluster.nodes * times)) continue;
    std::int64_t bad = cluster.nodes * times / 2;
    std::int64_t good = cluster.nodes * times;
    while (good - bad > 1) {
      const std::int64_t middle = bad + (good - bad) / 2;
      (with(middle) ? good : bad) = middle;
    }
    const std::int64_t more = (good - cluster.nodes) * cluster.gpus_per_node();
    search.keep("add " + std::to_string(more) + (more == 1 ? " GPU: " : " GPUs: ") +
                    std::to_string(good) + " nodes of " + std::to_string(cluster.gpus_per_node()) +
                    " instead of " + std::to_string(cluster.nodes),
                with(good));
    return;
  }
}

// Cheapest first: what costs only speed, then what changes the training, then what costs money.
std::vector<Remedy> remedies(const Question& question,
                             const StrategyResult& example,
                             const PredictOptions& options) {
  constexpr std::size_t kMost = 3;
  RemedySearch search{question, options, example, {}};
  for (const auto attempt : {try_checkpointing,
                             try_not_reentrant,
                             try_leaner_offload,
                             try_micro_batch,
                             try_half_precision,
                             try_shorter_sequences,
                             try_more_host_memory,
                             try_more_nodes}) {
    if (search.found.size() < kMost) attempt(search);
  }
  return std::move(search.found);
}

}  // namespace

FitAnswer fit(const Scenario& scenario, const PredictOptions& options) {
  const Question question = ask(scenario);
  FitAnswer answer;
  answer.strategies = plan_all(question);
  play_all(answer.strategies, options);
  answer.recommended = best_of(answer.strategies);
  if (answer.recommended) {
    answer.runners_up = runners_up(answer.strategies, *answer.recommended);
    answer.headroom = headroom_of(question, answer.strategies[*answer.recommended], options);
  } else {
    answer.remedies = remedies(question, answer.strategies.front(), options);
  }
  return answer;
}

}  // namespace zeroplan
