// Peaks of memory as observations.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <utility>

#include "base/check.hpp"
#include "evidence/calibrate/observed_rows.hpp"
#include "evidence/scenario_prediction.hpp"
#include "model/plan/software_sets.hpp"
#include "model/predict/memory.hpp"
#include "model/predict/memory_intervals.hpp"
#include "model/predict/step_work.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan::evidence {
namespace {

constexpr Metric kMemoryMetrics[] = {Metric::peak_allocated_bytes,
                                     Metric::peak_reserved_bytes,
                                     Metric::peak_total_bytes,
                                     Metric::host_peak_bytes};

double count(Bytes bytes) { return static_cast<double>(bytes.count()); }

double value_of(Metric metric, const StepResult& result) {
  switch (metric) {
    case Metric::peak_allocated_bytes:
      return count(result.gpu.peak_allocated);
    case Metric::peak_reserved_bytes:
      return count(result.gpu.peak_reserved);
    case Metric::host_peak_bytes:
      return count(result.host.peak);
    default:
      return count(result.gpu.peak_total);
  }
}

bool simulates_memory(const Plan& plan) {
  return simulator::is_simulated(plan) || !plan.stages.empty();
}

// A plan with the coefficients of memory that a fit asks for. Those of time stay: they decide when
// a block is freed on another stream, but a fit of memory must not turn on them.
struct PreparedMemory {
  Plan plan;
  Metric metric = Metric::peak_total_bytes;
  std::optional<int> rank;
  StepResult result;  // with the table's coefficients
  double at_prior = 0.0;

  Plan with(const Coefficients& c) const {
    Plan moved = plan;
    for (const Coefficient id : memory_coefficients()) moved.coefficients.set(id, c[id]);
    return moved;
  }
  StepResult simulated(const Coefficients& c) const {
    simulator::SimulateOptions options;
    options.other_networks = false;
    options.rank = rank;
    return simulator::simulate(with(c), options);
  }
  // What the analytic estimate adds to the simulation of the prior. Where memory is simulated, only
  // what lies outside the allocator moves.
  double quick(const Coefficients& c) const {
    const Plan moved = with(c);
    if (metric == Metric::host_peak_bytes || !simulates_memory(plan)) {
      return closed_form(moved) + at_prior - closed_form(plan);
    }
    if (metric != Metric::peak_total_bytes) return at_prior;
    return at_prior + count(outside_torch_bytes(moved)) - count(outside_torch_bytes(plan));
  }

 private:
  double closed_form(const Plan& moved) const {
    StepResult closed;
    const MemoryPrediction memory = predict_memory(moved, step_work(moved));
    closed.gpu = memory.gpu;
    closed.host = memory.host;
    return value_of(metric, closed);
  }
};

const Interval<Bytes>& interval_of(Metric metric, const StepResult& result) {
  if (metric == Metric::peak_allocated_bytes) return result.peak_allocated_interval;
  return metric == Metric::peak_reserved_bytes ? result.peak_reserved_interval
                                               : result.peak_total_interval;
}

// What the model expects of its error, and which deviation of the table says most of it.
void take_deviation(const PreparedMemory& memory, Observation& row) {
  const Plan& plan = memory.plan;
  const Metric metric = memory.metric;
  const MemoryPrediction closed = predict_memory(plan, step_work(plan));
  if (metric == Metric::host_peak_bytes) {
    row.model_sd = closed.host_relative_sd;
    row.deviation = closed.host.peak_phase == Phase::load ? Coefficient::host_load_sd
                                                          : Coefficient::host_state_sd;
    return;
  }
  const StepResult& result = memory.result;
  const Interval<Bytes>& interval = interval_of(metric, result);
  row.model_sd = count(interval.high - interval.low) / (2.0 * kNinetyPercent * memory.at_prior);
  const double allocated = count(result.gpu.peak_allocated);
  double gap = 0.0;
  // Another allocator, and the analytic estimate of what is not simulated, are no samples of
  // PyTorch's gap.
  const bool is_sample =
      has_torch_allocator(plan) && simulates_memory(plan) && !simulates_every_request(plan);
  if (metric != Metric::peak_allocated_bytes && is_sample) {
    row.allocated = allocated;
    gap = allocated * plan.coefficients[Coefficient::reserved_gap_share] *
          plan.coefficients.relative_sd(Coefficient::reserved_gap_share);
  }
  const std::pair<double, Coefficient> causes[] = {
      {closed.spread.activations, Coefficient::activation_model_sd},
      {closed.spread.states, Coefficient::model_state_sd},
      {closed.spread.code, Coefficient::megatron_memory_sd},
      {gap, Coefficient::reserved_gap_share}};
  row.deviation =
      std::max_element(std::begin(causes), std::end(causes), [](const auto& a, const auto& b) {
        return a.first < b.first;
      })->second;
}

// What keys that is unspecified may change, as a standard deviation of the logarithm: what the
// interval over their values has beyond the model's own, and how far the default is from what is
// likely of a run.
double open_spread(const ScenarioPrediction& prediction, Metric metric, double model_sd) {
  const PredictedMetric& predicted = *prediction.of(metric);
  if (predicted.low <= 0.0) return 1.0;  // anything
  const double width = std::log(predicted.high / predicted.low) / (2.0 * kNinetyPercent);
  const auto& likely = prediction.likely[static_cast<std::size_t>(metric)];
  const double away = likely ? std::log(predicted.value / likely->value) : 0.0;
  return std::hypot(away, std::sqrt(std::max(0.0, width * width - model_sd * model_sd)));
}

}  // namespace

bool is_observed_memory(Metric metric) {
  return std::find(std::begin(kMemoryMetrics), std::end(kMemoryMetrics), metric) !=
         std::end(kMemoryMetrics);
}

std::vector<Metric> memory_metrics(const Measured& measured) {
  std::vector<Metric> metrics;
  for (const Metric metric : kMemoryMetrics) {
    if (measured.has(metric)) metrics.push_back(metric);
  }
  return metrics;
}

Observation observed_memory(const ObservedScenario& observed) {
  const Measurement& line = *observed.lines.front();
  const Scenario scenario = without_profile(line.scenario);
  const auto memory = std::make_shared<PreparedMemory>();
  memory->plan = resolve(with_reported_software(scenario));
  memory->metric = observed.metric;
  memory->rank = line.rank;
  const Plan& plan = memory->plan;
  memory->result = memory->simulated(plan.coefficients);
  memory->at_prior = value_of(observed.metric, memory->result);

  Observation row = header(*observed.file, line, plan.cluster.gpu.key);
  row.kind = ObservationKind::memory;
  row.what = name(observed.metric);
  row.measured = median_of(observed.lines, observed.metric);
  take_deviation(*memory, row);
  ScenarioPredictionOptions options;
  options.rank = line.rank;
  options.host_memory = observed.metric == Metric::host_peak_bytes;
  const ScenarioPrediction predicted = predict_scenario(scenario, options);
  row.open_sd = open_spread(predicted, observed.metric, row.model_sd);
  row.sd = std::hypot(spread_of(line, observed.metric), row.open_sd);
  row.exact = [memory](const Coefficients& c) {
    return value_of(memory->metric, memory->simulated(c));
  };
  row.quick = [memory](const Coefficients& c) { return memory->quick(c); };
  describe(plan, row);
  return row;
}

}  // namespace zeroplan::evidence
