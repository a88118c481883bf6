#include "evidence/scenario_prediction.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.hpp"
#include "evidence/accuracy.hpp"
#include "evidence/alternatives.hpp"
#include "evidence/scenario_variants.hpp"
#include "model/plan/software_sets.hpp"
#include "model/predict/memory.hpp"
#include "model/predict/model_flops.hpp"
#include "model/predict/step_time.hpp"
#include "model/predict/step_work.hpp"

namespace zeroplan::evidence {
namespace {

// --- what the scenario says
// ----------------------------------------------------------------------------

bool is_said(const Scenario& scenario, ScenarioKey key) { return scenario.find(key) != nullptr; }

bool names_gpu(const Scenario& scenario) {
  const ExplicitValue* said = scenario.find(ScenarioKey::cluster);
  if (said == nullptr) return false;
  return !said->value.is_object() || said->value.find("gpu") != nullptr;
}

// --- one prediction
// ------------------------------------------------------------------------------------

// Value and interval of each metric for one plan. That of what is held between steps is as wide,
// relatively, as that of the allocated peak; rates are turned over.
class Metrics {
 public:
  Metrics(const Plan& plan, const StepResult& result, const ScenarioPredictionOptions& options)
      : plan_(plan), result_(result) {
    memory();
    time();
    if (options.host_memory) host();
  }

  MetricArray values;

 private:
  void set(Metric metric, double value, double low_factor, double high_factor) {
    if (!std::isfinite(value)) return;
    values[static_cast<std::size_t>(metric)] = {value, value * low_factor, value * high_factor};
  }

  void memory() {
    const GpuMemory& gpu = result_.gpu;
    const auto bytes = [&](Metric metric, Bytes value, const Interval<Bytes>& interval, Bytes of) {
      set(metric, static_cast<double>(value.count()), interval.low / of, interval.high / of);
    };
    const auto peak = [&](Metric metric, Bytes value, const Interval<Bytes>& interval) {
      bytes(metric, value, interval, value);
    };
    peak(Metric::peak_allocated_bytes, gpu.peak_allocated, result_.peak_allocated_interval);
    peak(Metric::peak_reserved_bytes, gpu.peak_reserved, result_.peak_reserved_interval);
    peak(Metric::peak_total_bytes, gpu.peak_total, result_.peak_total_interval);
    bytes(Metric::static_allocated_bytes,
          gpu.static_allocated,
          result_.peak_allocated_interval,
          gpu.peak_allocated);
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
  MicroBatches(Scenario scenario, Prepared prepared, simulator::SimulateOptions options)
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
      probability = simulator::simulate(resolve(scenario_, prepared_), options_).fit_probability;
    } catch (const SizeOverflow&) {
      // Too large to be counted is too large to fit.
    }
    return known_[size] = probability;
  }

  Scenario scenario_;
  Prepared prepared_;
  simulator::SimulateOptions options_;
  std::map<std::int64_t, double> known_;
};

PredictedMetric largest_micro_batch(const Scenario& scenario,
                                    const Prepared& prepared,
                                    const simulator::SimulateOptions& options) {
  MicroBatches sizes(scenario, prepared, options);
  const auto count = [&](double probability) {
    return static_cast<double>(sizes.largest(probability));
  };
  return {count(0.5), count(0.95), count(0.05)};
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

ScenarioPrediction predict_scenario(const Scenario& stated,
                                    const ScenarioPredictionOptions& options) {
  const Scenario scenario = with_reported_software(stated);
  const Prepared prepared = prepare(scenario);
  simulator::SimulateOptions simulation;
  simulation.predict.confidence = options.confidence;
  simulation.predict.host_is_open = false;
  simulation.other_networks = false;

  ScenarioPrediction prediction;
  const Plan plan = resolve(scenario, prepared);
  simulation.rank = options.rank;
  const auto predict = [&](const Plan& other) {
    StepResult result = simulator::simulate(other, simulation);
    MetricArray metrics = Metrics(other, result, options).values;
    return Variant{metrics, std::move(result), strategy_of(other)};
  };
  Variant defaults = predict(plan);
  const std::vector<OpenKey> open = open_keys(stated, plan, defaults.result);
  for (const OpenKey& key : open) {
    if (!key.is_quiet) prediction.not_stated.push_back(key.name);
  }
  VariantsAnswer answer = weigh_variants({scenario, prepared, open, predict}, defaults);
  prediction.metrics = answer.metrics;
  prediction.likely = answer.likely;
  prediction.likely_values = std::move(answer.likely_values);
  prediction.result = std::move(defaults.result);
  prediction.strategy = std::move(defaults.strategy);
  prediction.fit_probability = answer.fit_probability;
  prediction.fits = prediction.fit_probability >= options.confidence;
  if (options.max_micro_batch_size) {
    prediction.metrics[static_cast<std::size_t>(Metric::max_micro_batch_size)] =
        largest_micro_batch(scenario, prepared, simulation);
  }
  return prediction;
}

}  // namespace zeroplan::evidence
