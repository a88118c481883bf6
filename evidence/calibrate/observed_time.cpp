// Times of steps and of collectives as observations.
#include <cmath>
#include <memory>

#include "evidence/calibrate/observed_rows.hpp"
#include "evidence/scenario_prediction.hpp"
#include "model/cost/collective.hpp"
#include "model/cost/contention.hpp"
#include "model/plan/software_sets.hpp"
#include "model/predict/stage_work.hpp"
#include "model/predict/step_time.hpp"
#include "model/predict/step_traffic.hpp"
#include "model/predict/step_work.hpp"
#include "simulator/lockstep.hpp"
#include "simulator/planned_ranks.hpp"
#include "simulator/rank_simulation.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan::evidence {
namespace {

constexpr double kCollectiveSpread = 0.08;  // of one size and kind, protocol switches included

// What a metric's unit has to do with seconds.
constexpr Metric kTimeMetrics[] = {Metric::step_seconds,
                                   Metric::tokens_per_second_per_gpu,
                                   Metric::samples_per_second,
                                   Metric::model_tflops_per_gpu,
                                   Metric::hardware_tflops_per_gpu,
                                   Metric::mfu};

double value_of(Metric metric, const StepTime& time, const Plan& plan) {
  switch (metric) {
    case Metric::tokens_per_second_per_gpu:
      return time.tokens_per_second_per_gpu;
    case Metric::samples_per_second:
      return time.samples_per_second;
    case Metric::model_tflops_per_gpu:
      return time.model_flops_per_gpu.value() / 1e12;
    case Metric::hardware_tflops_per_gpu:
      return time.model_flops_per_gpu.value() / 1e12 * recomputation_factor(plan);
    case Metric::mfu:
      return time.mfu;
    default:
      return time.total.seconds();
  }
}

// All that a step's prediction needs besides coefficients.
struct PreparedStep {
  Plan plan;
  StepWork work;
  StepTraffic traffic;
  std::vector<StageWork> stages;  // empty: no pipeline

  Plan with(const Coefficients& c) const {
    Plan moved = plan;
    moved.coefficients = c;
    return moved;
  }
  StepTime closed_form(const Coefficients& c) const {
    const Plan moved = with(c);
    if (stages.empty()) return step_time(moved, work.graph, traffic);
    std::vector<StageWork> other = stages;
    for (StageWork& stage : other) stage.plan.coefficients = c;
    return pipeline_time(moved, other);
  }
  double simulated(const Coefficients& c) const {
    const Plan moved = with(c);
    if (!simulator::is_simulated(moved)) return closed_form(c).total.seconds();
    const simulator::RankSimulation run =
        simulator::simulate_rank(simulator::write_representative(moved, work.graph));
    return scaling_factor(moved.cluster.nodes, c) * (run.step.end - run.step.begin);
  }
};

void take_model_sd(Observation& row) {
  row.deviation = Coefficient::step_time_model_sd;
  row.model_sd = row.table[row.deviation];
}

}  // namespace

std::optional<Metric> time_metric(const Measured& measured) {
  for (const Metric metric : kTimeMetrics) {
    if (measured.has(metric)) return metric;
  }
  return std::nullopt;
}

Observation observed_step(const ObservedScenario& observed) {
  const Measurement& line = *observed.lines.front();
  const auto step = std::make_shared<PreparedStep>();
  step->plan = resolve(with_reported_software(without_profile(line.scenario)));
  step->work = step_work(step->plan);
  step->traffic = step_traffic(step->plan, step->work);
  if (!step->plan.stages.empty()) step->stages = stage_works(step->plan);

  const Plan& plan = step->plan;
  Observation row = header(*observed.file, line, plan.cluster.gpu.key);
  row.what = name(observed.metric);
  row.sd = spread_of(line, observed.metric);
  take_model_sd(row);
  row.measured = median_of(observed.lines, observed.metric);
  if (observed.metric != Metric::step_seconds) {
    const StepTime time = step->closed_form(plan.coefficients);
    row.measured = value_of(observed.metric, time, plan) * time.total.seconds() / row.measured;
  }
  row.exact = [step](const Coefficients& c) { return step->simulated(c); };
  row.quick = [step](const Coefficients& c) { return step->closed_form(c).total.seconds(); };
  describe(plan, row);
  return row;
}

void observe_collectives(const MeasurementFile& file,
                         const Measurement& line,
                         Observations& observations) {
  const ExplicitValue* said = line.scenario.find(ScenarioKey::cluster);
  const auto unused = [&](std::string reason) {
    observations.unused.push_back({file.file, line.id, std::move(reason)});
  };
  if (said == nullptr) return unused("collectives on a cluster that is not stated");
  std::shared_ptr<const Cluster> cluster;
  try {
    cluster = read_cluster_of(line.scenario, nullptr);
  } catch (const InputError& error) {
    return unused("collectives: got " + error.diagnostics().front().got);
  }
  for (const CollectiveTiming& timing : line.parts.collectives) {
    const std::optional<Collective> kind =
        find(kCollectiveNames, std::string_view(timing.operation));
    CollectiveGroup group = whole_cluster(*cluster);
    if (timing.ranks > 0) {
      const bool inside = timing.ranks <= cluster->gpus_per_node();
      group.nodes = timing.nodes > 0 ? timing.nodes : inside ? 1 : cluster->nodes;
      group.ranks_per_node = timing.ranks / std::max<std::int64_t>(1, group.nodes);
    }
    if (!kind || timing.bytes <= Bytes::zero() || group.ranks() <= 1) continue;
    Observation row = header(file, line, cluster->gpu.key);
    row.what = timing.operation;
    row.measured = timing.seconds.seconds();
    row.sd = kCollectiveSpread;
    take_model_sd(row);
    row.exact = [cluster, group, kind = *kind, bytes = timing.bytes](const Coefficients& c) {
      return collective_time(kind, bytes, group, *cluster, c).seconds();
    };
    row.quick = row.exact;
    if (!is_number_to_fit(row.measured, row.exact(row.table))) {
      unused("collectives: " + timing.operation + " took no number of seconds");
      continue;
    }
    observations.rows.push_back(std::move(row));
  }
}

}  // namespace zeroplan::evidence
