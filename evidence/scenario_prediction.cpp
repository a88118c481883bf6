#include "evidence/scenario_prediction.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "evidence/alternatives.hpp"
#include "model/check.hpp"
#include "model/predict/memory.hpp"
#include "model/predict/step_time.hpp"
#include "model/predict/step_work.hpp"

namespace zeroplan {
namespace {

constexpr double kNinetyPercent = 1.645;  // standard deviations on each side of a 90 % interval

// --- what the scenario says
// ----------------------------------------------------------------------------

bool is_said(const Scenario& scenario, ScenarioKey key) { return scenario.find(key) != nullptr; }

bool names_gpu(const Scenario& scenario) {
  const Said* said = scenario.find(ScenarioKey::cluster);
  if (said == nullptr) return false;
  return !said->value.is_object() || said->value.find("gpu") != nullptr;
}

// --- one prediction
// ------------------------------------------------------------------------------------

std::string strategy_of(const Plan& plan) {
  switch (plan.workload.engine) {
    case TrainingEngine::ddp:
      return "DDP";
    case TrainingEngine::fsdp:
      if (plan.fsdp.sharding == Sharding::no_shard) return "FSDP no shard";
      if (plan.fsdp.shard_ranks < plan.fsdp.ranks) return "FSDP hybrid";
      return plan.fsdp.sharding == Sharding::full ? "FSDP full shard" : "FSDP shard-grad-op";
    default:
      break;
  }
  std::string text = "ZeRO-" + std::to_string(plan.engine.stage);
  const auto offload = [&](const char* what, OffloadDevice device) {
    if (device == OffloadDevice::none) return;
    text += std::string(", ") + what + " on " + (device == OffloadDevice::cpu ? "CPU" : "NVMe");
  };
  offload("optimizer", plan.engine.offload_optimizer.device);
  offload("parameters", plan.engine.offload_parameter.device);
  return text;
}

// Value and interval of each metric for one plan. Intervals of other memory metrics are as wide,
// relatively, as that of the allocated peak; rates are turned over.
class Metrics {
 public:
  Metrics(const Plan& plan, const StepResult& result, const ScenarioPredictionOptions& options)
      : plan_(plan), result_(result) {
    memory();
    time();
    if (options.host_memory) host();
  }

  std::array<std::optional<PredictedMetric>, kMetricCount> values;

 private:
  void set(Metric metric, double value, double low_factor, double high_factor) {
    if (!std::isfinite(value)) return;
    values[static_cast<std::size_t>(metric)] = {value, value * low_factor, value * high_factor};
  }

  void memory() {
    const GpuMemory& gpu = result_.gpu;
    const double low = result_.peak_allocated_interval.low / gpu.peak_allocated;
    const double high = result_.peak_allocated_interval.high / gpu.peak_allocated;
    const auto bytes = [&](Metric metric, Bytes value) {
      set(metric, static_cast<double>(value.count()), low, high);
    };
    bytes(Metric::peak_allocated_bytes, gpu.peak_allocated);
    bytes(Metric::peak_reserved_bytes, gpu.peak_reserved);
    bytes(Metric::peak_total_bytes, gpu.peak_total);
    bytes(Metric::static_allocated_bytes, gpu.static_allocated);
  }

  void time() {
    const StepTime& step = result_.step;
    const double low = result_.step_interval.low / step.total;
    const double high = result_.step_interval.high / step.total;
    set(Metric::step_seconds, step.total.seconds(), low, high);
    const auto rate = [&](Metric metric, double value) {
      set(metric, value, 1.0 / high, 1.0 / low);
    };
    rate(Metric::samples_per_second, step.samples_per_second);
    rate(Metric::tokens_per_second_per_gpu, step.tokens_per_second_per_gpu);
    const double tflops = step.model_flops_per_gpu.value() / 1e12;
    rate(Metric::model_tflops_per_gpu, tflops);
    rate(Metric::hardware_tflops_per_gpu, tflops * recomputation_factor(plan_));
    rate(Metric::mfu, step.mfu);
  }

  void host() {
    const MemoryPrediction prediction = predict_memory(plan_, step_work(plan_));
    const double spread = kNinetyPercent * prediction.host_relative_sd;
    set(Metric::host_peak_bytes,
        static_cast<double>(result_.host.peak.count()),
        std::max(0.0, 1.0 - spread),
        1.0 + spread);
  }

  const Plan& plan_;
  const StepResult& result_;
};

// --- the largest micro-batch
// ---------------------------------------------------------------------------

// With which probability a micro-batch size fits; each is simulated once.
class MicroBatches {
 public:
  MicroBatches(Scenario scenario, Prepared prepared, SimulateOptions options)
      : scenario_(std::move(scenario)), prepared_(std::move(prepared)), options_(options) {
    // What the ds_config says of batches gives way.
    auto config = std::make_shared<DsConfig>(ds_config_of(scenario_));
    config->unset(Knob::train_micro_batch_size_per_gpu);
    config->unset(Knob::train_batch_size);
    if (is_said(scenario_, ScenarioKey::ds_config)) prepared_.ds_config = std::move(config);
  }

  // The largest that fits with at least this probability; 0: none does.
  std::int64_t largest(double probability) {
    std::int64_t fits = 0;
    std::int64_t fails = 1;
    while (fails <= kMost && of(fails) >= probability) {
      fits = fails;
      fails *= 2;
    }
    while (fails - fits > 1) {
      const std::int64_t middle = fits + (fails - fits) / 2;
      (of(middle) >= probability ? fits : fails) = middle;
    }
    return fits;
  }

 private:
  static constexpr std::int64_t kMost = std::int64_t{1} << 20;

  double of(std::int64_t size) {
    const auto known = known_.find(size);
    if (known != known_.end()) return known->second;
    scenario_.set(ScenarioKey::micro_batch_size, Json(size), {"", "/workload/micro_batch_size"});
    double probability = 0.0;
    try {
      probability = simulate(resolve(scenario_, prepared_), options_).fit_probability;
    } catch (const SizeOverflow&) {
      // Too large to be counted is too large to fit.
    }
    return known_[size] = probability;
  }

  Scenario scenario_;
  Prepared prepared_;
  SimulateOptions options_;
  std::map<std::int64_t, double> known_;
};

PredictedMetric largest_micro_batch(const Scenario& scenario,
                                    const Prepared& prepared,
                                    const SimulateOptions& options) {
  MicroBatches sizes(scenario, prepared, options);
  const auto count = [&](double probability) {
    return static_cast<double>(sizes.largest(probability));
  };
  return {count(0.5), count(0.95), count(0.05)};
}

// --- alternatives
// --------------------------------------------------------------------------------------

using MetricArray = std::array<std::optional<PredictedMetric>, kMetricCount>;

// One assignment of values to what is open.
struct Variant {
  MetricArray metrics;
  double fit_probability = 0.0;
};

// Predicts a scenario under values of its open keys. `choice` has for each key the number of an
// alternative, or -1 for the default.
class Variants {
 public:
  Variants(const Scenario& scenario,
           const Prepared& prepared,
           const std::vector<OpenKey>& keys,
           const SimulateOptions& simulation,
           const ScenarioPredictionOptions& options)
      : scenario_(scenario),
        prepared_(prepared),
        keys_(keys),
        simulation_(simulation),
        options_(options) {}

  // None: a value does not exist here, such as attention that the model's class lacks, or precision
  // against the ds_config.
  std::optional<Variant> of(const std::vector<int>& choice) const {
    Scenario other = scenario_;
    for (std::size_t k = 0; k < keys_.size(); ++k) {
      if (const Alternative* chosen = alternative(choice, k)) {
        if (chosen->say) chosen->say(other);
      }
    }
    try {
      Plan plan = resolve(other, prepared_);
      for (std::size_t k = 0; k < keys_.size(); ++k) {
        if (const Alternative* chosen = alternative(choice, k)) {
          if (chosen->change) chosen->change(plan);
        }
      }
      const StepResult result = simulate(plan, simulation_);
      return Variant{Metrics(plan, result, options_).values, result.fit_probability};
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

  double weight(const std::vector<int>& choice) const {
    double product = 1.0;
    for (std::size_t k = 0; k < keys_.size(); ++k) {
      const Alternative* chosen = alternative(choice, k);
      product *= chosen != nullptr ? chosen->weight : keys_[k].default_weight();
    }
    return product;
  }

 private:
  const Alternative* alternative(const std::vector<int>& choice, std::size_t key) const {
    if (choice[key] < 0) return nullptr;
    return &keys_[key].alternatives[static_cast<std::size_t>(choice[key])];
  }

  const Scenario& scenario_;
  const Prepared& prepared_;
  const std::vector<OpenKey>& keys_;
  const SimulateOptions& simulation_;
  const ScenarioPredictionOptions& options_;
};

// By how much one variant differs from another: the largest |log| of a metric's ratio, or the
// difference in probability. Both are compared with a number near 0.
double distance(const Variant& a, const Variant& b) {
  double most = std::abs(a.fit_probability - b.fit_probability);
  for (std::size_t m = 0; m < kMetricCount; ++m) {
    if (!a.metrics[m] || !b.metrics[m]) continue;
    if (a.metrics[m]->value <= 0.0 || b.metrics[m]->value <= 0.0) continue;
    most = std::max(most, std::abs(std::log(a.metrics[m]->value / b.metrics[m]->value)));
  }
  return most;
}

void cover(const MetricArray& others, MetricArray& hull) {
  for (std::size_t m = 0; m < kMetricCount; ++m) {
    if (!hull[m] || !others[m]) continue;
    hull[m]->low = std::min(hull[m]->low, others[m]->low);
    hull[m]->high = std::max(hull[m]->high, others[m]->high);
  }
}

// The ends of `hull` move by the factors by which one key's own values move those of `defaults`.
void widen(const MetricArray& defaults, const std::vector<Variant>& values, MetricArray& hull) {
  MetricArray own = defaults;
  for (const Variant& value : values) cover(value.metrics, own);
  for (std::size_t m = 0; m < kMetricCount; ++m) {
    if (!hull[m] || !own[m]) continue;
    if (defaults[m]->low > 0.0) hull[m]->low *= own[m]->low / defaults[m]->low;
    if (defaults[m]->high > 0.0) hull[m]->high *= own[m]->high / defaults[m]->high;
  }
}

// What one open key does by itself.
struct KeyEffect {
  std::size_t key = 0;
  std::vector<Variant> values;
  std::vector<int> numbers;  // of the alternatives behind them: those that exist
  double distance = 0.0;
};

constexpr double kNoEffect = 0.005;

// The effect of key k's values where the other keys have those of `base`.
KeyEffect effect_at(const std::vector<int>& base,
                    std::size_t k,
                    const std::vector<OpenKey>& keys,
                    const Variants& variants,
                    const Variant& reference) {
  KeyEffect effect{k, {}, {}, 0.0};
  for (std::size_t a = 0; a < keys[k].alternatives.size(); ++a) {
    std::vector<int> choice = base;
    choice[k] = static_cast<int>(a);
    std::optional<Variant> variant = variants.of(choice);
    if (!variant) continue;
    effect.distance = std::max(effect.distance, distance(*variant, reference));
    effect.values.push_back(*variant);
    effect.numbers.push_back(static_cast<int>(a));
  }
  return effect;
}

// Whether `a` is nearer to fitting: likelier, or as likely with a lower peak.
bool is_nearer(const Variant& a, const Variant& b) {
  if (std::abs(a.fit_probability - b.fit_probability) > kNoEffect) {
    return a.fit_probability > b.fit_probability;
  }
  constexpr auto kPeak = static_cast<std::size_t>(Metric::peak_total_bytes);
  if (!a.metrics[kPeak] || !b.metrics[kPeak]) return false;
  return a.metrics[kPeak]->value < (1.0 - kNoEffect) * b.metrics[kPeak]->value;
}

// Keys with an effect, the largest first. A key may matter only beside another's value: the host's
// size only where the GPU's memory suffices, a tiled feed-forward only where the logits do not set
// the peak. So what does nothing to the defaults is tried again where one other value has brought
// the scenario nearest to fitting.
std::vector<KeyEffect> effects_of(const std::vector<OpenKey>& keys,
                                  const Variants& variants,
                                  const Variant& defaults) {
  const std::vector<int> none(keys.size(), -1);
  std::vector<int> best = none;
  Variant best_variant = defaults;
  std::vector<KeyEffect> effects;
  std::vector<std::size_t> without;
  for (std::size_t k = 0; k < keys.size(); ++k) {
    KeyEffect effect = effect_at(none, k, keys, variants, defaults);
    for (std::size_t a = 0; a < effect.values.size(); ++a) {
      if (!is_nearer(effect.values[a], best_variant)) continue;
      best = none;
      best[k] = effect.numbers[a];
      best_variant = effect.values[a];
    }
    if (effect.distance >= kNoEffect) {
      effects.push_back(std::move(effect));
    } else {
      without.push_back(k);
    }
  }
  if (best != none) {
    for (const std::size_t k : without) {
      KeyEffect effect = effect_at(best, k, keys, variants, best_variant);
      if (effect.distance < kNoEffect) continue;
      effect.values.clear();  // alone they do nothing
      effects.push_back(std::move(effect));
    }
  }
  std::stable_sort(effects.begin(), effects.end(), [](const KeyEffect& a, const KeyEffect& b) {
    return a.distance > b.distance;
  });
  return effects;
}

// Every combination of the values of the keys that matter most, so far as these are few; the other
// keys widen the interval by factors of their own and leave the probability alone.
void cover_alternatives(const std::vector<OpenKey>& keys,
                        const Variants& variants,
                        const Variant& defaults,
                        ScenarioPrediction& prediction) {
  constexpr std::size_t kMostCombinations = 32;
  const std::vector<KeyEffect> effects = effects_of(keys, variants, defaults);
  std::size_t crossed = 0;
  std::size_t combinations = 1;
  for (const KeyEffect& effect : effects) {
    const std::size_t values = keys[effect.key].alternatives.size() + 1;
    if (combinations * values > kMostCombinations) break;
    combinations *= values;
    ++crossed;
  }
  double weights = 0.0;
  double probability = 0.0;
  for (std::size_t number = 0; number < combinations; ++number) {
    std::vector<int> choice(keys.size(), -1);
    std::size_t rest = number;
    for (std::size_t i = 0; i < crossed; ++i) {
      const std::size_t values = keys[effects[i].key].alternatives.size() + 1;
      choice[effects[i].key] = static_cast<int>(rest % values) - 1;
      rest /= values;
    }
    const std::optional<Variant> variant = number == 0 ? defaults : variants.of(choice);
    if (!variant) continue;
    cover(variant->metrics, prediction.metrics);
    const double weight = variants.weight(choice);
    weights += weight;
    probability += weight * variant->fit_probability;
  }
  if (weights > 0.0) prediction.fit_probability = probability / weights;
  for (std::size_t i = crossed; i < effects.size(); ++i) {
    widen(defaults.metrics, effects[i].values, prediction.metrics);
  }
}

}  // namespace

std::optional<std::string> missing_key(const Scenario& scenario, bool needs_micro_batch) {
  if (!is_said(scenario, ScenarioKey::model)) return "model not stated";
  if (!names_gpu(scenario)) return "GPU not stated";
  if (!is_said(scenario, ScenarioKey::sequence_length)) return "sequence length not stated";
  if (!needs_micro_batch || is_said(scenario, ScenarioKey::micro_batch_size)) return std::nullopt;
  const DsConfig config = ds_config_of(scenario);
  if (config.integer(Knob::train_micro_batch_size_per_gpu) ||
      config.integer(Knob::train_batch_size)) {
    return std::nullopt;
  }
  return "micro-batch not stated";
}

double recomputation_factor(const Plan& plan) {
  if (plan.workload.activation_checkpointing != ActivationCheckpointing::full) return 1.0;
  const std::vector<int> block_of = wrapped_blocks(*plan.whole_model);
  double in_blocks = 0.0;
  for (std::size_t i = 0; i < block_of.size(); ++i) {
    if (block_of[i] < 0) continue;
    in_blocks += static_cast<double>(plan.whole_model->parameters[i].numel.count());
  }
  const double tokens = static_cast<double>(plan.workload.sequence_length);
  const TransformerShape& shape = plan.whole_model->shape;
  const double attention = 4.0 * static_cast<double>(shape.layers + shape.encoder_layers) *
                           static_cast<double>(shape.hidden) * tokens;
  const double model =
      model_flops_per_token(*plan.whole_model, plan.workload.sequence_length).value();
  return (model + 2.0 * in_blocks + attention) / model;
}

ScenarioPrediction predict_scenario(const Scenario& scenario,
                                    const ScenarioPredictionOptions& options) {
  const Prepared prepared = prepare(scenario);
  SimulateOptions simulation;
  simulation.predict.confidence = options.confidence;
  simulation.other_networks = false;

  ScenarioPrediction prediction;
  const Plan plan = resolve(scenario, prepared);
  prediction.result = simulate(plan, simulation);
  prediction.strategy = strategy_of(plan);
  prediction.metrics = Metrics(plan, prediction.result, options).values;
  if (options.max_micro_batch_size) {
    prediction.metrics[static_cast<std::size_t>(Metric::max_micro_batch_size)] =
        largest_micro_batch(scenario, prepared, simulation);
  }

  const std::vector<OpenKey> open = open_keys(scenario, plan, prediction.result);
  for (const OpenKey& key : open) {
    if (!key.is_quiet) prediction.not_stated.push_back(key.name);
  }
  prediction.fit_probability = prediction.result.fit_probability;
  const Variants variants(scenario, prepared, open, simulation, options);
  cover_alternatives(open, variants, {prediction.metrics, prediction.fit_probability}, prediction);
  prediction.fits = prediction.fit_probability >= options.confidence;
  return prediction;
}

}  // namespace zeroplan
