#include "evidence/calibrate/observation.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "evidence/parallel_for.hpp"
#include "evidence/scenario_prediction.hpp"
#include "model/check.hpp"
#include "model/cost/collective.hpp"
#include "model/cost/contention.hpp"
#include "model/predict/step_time.hpp"
#include "model/predict/step_traffic.hpp"
#include "model/predict/step_work.hpp"
#include "simulator/rank_simulation.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan {
namespace {

// Spread of a row around a model without faults: clocks, data, what no key says. Assumed; the
// robust loss takes care of worse rows, and the report says how large residuals are in truth.
constexpr double kRowSpread = 0.05;
constexpr double kTierB = 0.05;  // added to it as squares: a knob missing, or read off a chart
constexpr double kTierC = 0.15;
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

// "https://github.com/owner/name/issues/1 (table 2)" -> "owner/name": files of one repository come
// from the same machines and hands.
std::string origin_of(const std::string& source) {
  std::string word = source.substr(0, source.find(' '));
  constexpr std::string_view kHost = "https://github.com/";
  if (word.starts_with(kHost)) word.erase(0, kHost.size());
  const std::size_t owner = word.find('/');
  return owner == std::string::npos ? word : word.substr(0, word.find('/', owner + 1));
}

double spread_of(const Measurement& measurement, Metric metric) {
  double variance = std::pow(measurement.uncertainty.of(metric).value_or(kRowSpread), 2.0);
  if (measurement.tier == "B") variance += kTierB * kTierB;
  if (measurement.tier == "C") variance += kTierC * kTierC;
  return std::sqrt(variance);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

// All that a step's prediction needs besides coefficients.
struct PreparedStep {
  Plan plan;
  StepWork work;
  StepTraffic traffic;

  Plan with(const Coefficients& c) const {
    Plan moved = plan;
    moved.coefficients = c;
    return moved;
  }
  StepTime closed_form(const Coefficients& c) const {
    return step_time(with(c), work.graph, traffic);
  }
  double played(const Coefficients& c) const {
    const Plan moved = with(c);
    if (!is_simulated(moved)) return step_time(moved, work.graph, traffic).total.seconds();
    const RankSimulation run = simulate_rank(write_rank_program(moved, work));
    return scaling_factor(moved.cluster.nodes, c) * (run.step.end - run.step.begin);
  }
};

// One scenario with the lines that measured it.
struct Candidate {
  const MeasurementFile* file = nullptr;
  std::vector<const Measurement*> lines;
  Metric metric = Metric::step_seconds;
  std::optional<Observation> row;
  std::string reason;
};

std::optional<Metric> time_metric(const Measured& measured) {
  for (const Metric metric : kTimeMetrics) {
    if (measured.has(metric)) return metric;
  }
  return std::nullopt;
}

Observation header(const MeasurementFile& file, const Measurement& line, const std::string& card) {
  Observation row;
  row.id = line.id;
  row.file = file.file;
  row.source = line.source;
  row.origin = origin_of(line.source);
  row.card = card;
  row.table = Coefficients(card);
  return row;
}

Observation observed_step(const Candidate& candidate) {
  const Measurement& line = *candidate.lines.front();
  const auto step = std::make_shared<PreparedStep>();
  Scenario scenario = line.scenario;
  scenario.unset(ScenarioKey::profile);  // the prior is the table's
  step->plan = resolve(scenario);
  step->work = step_work(step->plan);
  step->traffic = step_traffic(step->plan, step->work);

  const Plan& plan = step->plan;
  Observation row = header(*candidate.file, line, plan.cluster.gpu.key);
  row.what = name(candidate.metric);
  row.sd = spread_of(line, candidate.metric);
  std::vector<double> values;
  for (const Measurement* each : candidate.lines) {
    if (const auto value = each->measured.number(candidate.metric)) values.push_back(*value);
  }
  row.measured = median(values);
  if (candidate.metric != Metric::step_seconds) {
    const StepTime time = step->closed_form(plan.coefficients);
    row.measured = value_of(candidate.metric, time, plan) * time.total.seconds() / row.measured;
  }
  row.exact = [step](const Coefficients& c) { return step->played(c); };
  row.quick = [step](const Coefficients& c) { return step->closed_form(c).total.seconds(); };
  row.parameters = static_cast<double>(count_parameters(*plan.model).total.count());
  row.sequence_length = static_cast<double>(plan.workload.sequence_length);
  row.tokens_per_micro_batch =
      row.sequence_length * static_cast<double>(plan.workload.micro_batch_size);
  row.gpus = static_cast<double>(plan.degrees.world);
  return row;
}

void observe(Candidate& candidate) {
  const Scenario& scenario = candidate.lines.front()->scenario;
  if (const auto missing = missing_key(scenario)) {
    candidate.reason = *missing;
    return;
  }
  try {
    Observation row = observed_step(candidate);
    const double predicted = row.exact(row.table);
    if (std::isfinite(predicted) && predicted > 0.0) {
      candidate.row = std::move(row);
    } else {
      candidate.reason = "its time is not predicted";
    }
  } catch (const InputError& error) {
    const Diagnostic& first = error.diagnostics().front();
    candidate.reason = first.got.ends_with("not modelled yet")
                           ? first.got
                           : "expected " + first.expected + ", got " + first.got;
  } catch (const SizeOverflow&) {
    candidate.reason = "sizes too large to count";
  }
}

// Collectives beside a step, or alone as nccl-tests prints them.
void observe_collectives(const MeasurementFile& file,
                         const Measurement& line,
                         Observations& observations) {
  const Said* said = line.scenario.find(ScenarioKey::cluster);
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
    row.exact = [cluster, group, kind = *kind, bytes = timing.bytes](const Coefficients& c) {
      return collective_time(kind, bytes, group, *cluster, c).seconds();
    };
    row.quick = row.exact;
    observations.rows.push_back(std::move(row));
  }
}

}  // namespace

Observations observe(const std::vector<MeasurementFile>& files,
                     const std::string& tiers,
                     std::int64_t jobs) {
  Observations observations;
  std::vector<Candidate> candidates;
  std::map<std::string, std::size_t> known;
  for (const MeasurementFile& file : files) {
    for (const Measurement& line : file.measurements) {
      if (!tiers.empty() && (line.tier.empty() || tiers.find(line.tier) == std::string::npos)) {
        continue;
      }
      if (!line.parts.collectives.empty()) observe_collectives(file, line, observations);
      const std::optional<Metric> metric = time_metric(line.measured);
      if (!metric) {
        if (line.parts.collectives.empty()) {
          observations.unused.push_back({file.file, line.id, "measures no time"});
        }
        continue;
      }
      // Repeats that measured another metric are scenarios of their own kind.
      const std::string key = scenario_identity(line.scenario) + " " + std::string(name(*metric));
      const auto [at, is_new] = known.emplace(key, candidates.size());
      if (is_new) {
        Candidate candidate;
        candidate.file = &file;
        candidate.metric = *metric;
        candidates.push_back(std::move(candidate));
      }
      candidates[at->second].lines.push_back(&line);
    }
  }
  parallel_for(candidates.size(), jobs, [&](std::size_t i) { observe(candidates[i]); });
  for (Candidate& candidate : candidates) {
    if (candidate.row) {
      observations.rows.push_back(std::move(*candidate.row));
    } else {
      observations.unused.push_back(
          {candidate.file->file, candidate.lines.front()->id, candidate.reason});
    }
  }
  return observations;
}

}  // namespace zeroplan
