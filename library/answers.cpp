#include "library/answers.hpp"

#include "model/lint/io_lint_report.hpp"
#include "model/lint/place.hpp"
#include "model/predict/io_checkpoint.hpp"
#include "model/predict/io_step_result.hpp"
#include "tuner/fit_ranking.hpp"
#include "tuner/io_fit_answer.hpp"
#include "tuner/io_tune_answer.hpp"
#include "tuner/kit/kit.hpp"

namespace zeroplan::library {
namespace {

// As a command prints it with --json.
std::string printed(const Json& document) { return document.dump(2) + "\n"; }

std::string text(std::string_view name) { return std::string(name); }

v1::Interval<std::int64_t> counts(const Interval<Bytes>& interval) {
  return {interval.low.count(), interval.high.count()};
}

v1::GpuMemory gpu_of(const GpuMemory& gpu) {
  v1::GpuMemory memory;
  memory.rank = gpu.rank;
  memory.capacity_bytes = gpu.capacity.count();
  memory.peak_allocated_bytes = gpu.peak_allocated.count();
  memory.peak_reserved_bytes = gpu.peak_reserved.count();
  memory.replayed_reserved_bytes = gpu.replayed_reserved.count();
  memory.peak_total_bytes = gpu.peak_total.count();
  memory.static_allocated_bytes = gpu.static_allocated.count();
  memory.peak_phase = text(name(kPhaseNames, gpu.peak_phase));
  memory.allocator_flushes = gpu.allocator_flushes;
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) {
    memory.breakdown_at_peak_bytes[text(kMemoryCategoryNames[i])] =
        gpu.breakdown_at_peak[i].count();
  }
  return memory;
}

v1::StepTime step_of(const StepTime& step) {
  v1::StepTime time;
  time.seconds = step.total.seconds();
  time.forward_seconds = step.forward.seconds();
  time.backward_seconds = step.backward.seconds();
  time.optimizer_seconds = step.optimizer.seconds();
  time.exposed_communication_seconds = step.exposed_communication.seconds();
  time.exposed_offload_seconds = step.exposed_offload.seconds();
  time.bounds_seconds = {step.lower_bound.seconds(), step.upper_bound.seconds()};
  time.bound = text(name(kBoundNames, step.bound));
  time.tokens_per_second_per_gpu = step.tokens_per_second_per_gpu;
  time.samples_per_second = step.samples_per_second;
  time.model_flops_per_second_per_gpu = step.model_flops_per_gpu.value();
  time.mfu = step.mfu;
  return time;
}

v1::Strategy strategy_of(const tuner::StrategyResult& row) {
  v1::Strategy strategy;
  strategy.stage = row.strategy.stage;
  strategy.offload_optimizer = text(tuner::name(row.strategy.offload_optimizer));
  strategy.offload_param = text(tuner::name(row.strategy.offload_parameter));
  strategy.activation_checkpointing =
      text(name(kActivationCheckpointingNames, row.strategy.checkpointing));
  strategy.micro_batch_size = row.plan.workload.micro_batch_size;
  strategy.gradient_accumulation_steps = row.plan.workload.gradient_accumulation_steps;
  strategy.fits = row.result.fits;
  strategy.simulated = row.simulated;
  strategy.at_limit = row.result.fits && tuner::is_at_limit(row.result);
  strategy.ds_config = printed(emit(written_ds_config(row.plan)));
  strategy.result = answer_of(row.result);
  return strategy;
}

std::vector<v1::Remedy> remedies_of(const std::vector<tuner::Remedy>& remedies) {
  std::vector<v1::Remedy> list;
  for (const tuner::Remedy& remedy : remedies) {
    list.push_back({remedy.change,
                    printed(emit(written_ds_config(remedy.best.plan))),
                    answer_of(remedy.best.result)});
  }
  return list;
}

v1::Configuration configuration_of(const Plan& plan, const Scenario& scenario) {
  const Json document = scenario_document(plan, scenario);
  v1::Configuration configuration;
  configuration.scenario = printed(document);
  configuration.ds_config = printed(emit(written_ds_config(plan)));
  configuration.workload = printed(*document.find("workload"));
  return configuration;
}

v1::Configuration best_of(const tuner::TuneAnswer& answer) {
  v1::Configuration best = configuration_of(*answer.plan, answer.scenario);
  best.tokens_per_second_per_gpu = answer.result.step.tokens_per_second_per_gpu;
  best.step_seconds = answer.result.step.total.seconds();
  best.gpu_bytes = answer.result.gpu.peak_total.count();
  best.host_bytes = answer.result.host.peak.count();
  return best;
}

v1::Configuration point_of(const tuner::FrontPoint& point, const Scenario& scenario) {
  v1::Configuration configuration = configuration_of(point.plan, scenario);
  configuration.tokens_per_second_per_gpu = point.seen.tokens_per_second;
  configuration.step_seconds = point.seen.step.seconds();
  configuration.gpu_bytes = point.seen.gpu_memory.count();
  configuration.host_bytes = point.seen.host_memory.count();
  return configuration;
}

v1::Severity severity_of(Severity severity) {
  switch (severity) {
    case Severity::error:
      return v1::Severity::error;
    case Severity::warning:
      return v1::Severity::warning;
    case Severity::info:
      break;
  }
  return v1::Severity::info;
}

}  // namespace

v1::Resolved answer_of(const Plan& plan, const Scenario& scenario) {
  v1::Resolved resolved(printed(scenario_document(plan, scenario)));
  resolved.assumptions.assign(plan.assumptions.begin(), plan.assumptions.end());
  resolved.warnings.assign(plan.warnings.begin(), plan.warnings.end());
  return resolved;
}

namespace {

// `json`: its document.
v1::Simulation simulation_of(const StepResult& result, std::string json) {
  v1::Simulation answer(std::move(json));
  answer.id = result.id;
  answer.fits = result.fits;
  answer.fit_probability = result.fit_probability;
  if (result.host_condition) answer.host_condition_bytes = result.host_condition->enough.count();
  for (const Limit& limit : result.limits) {
    answer.limits.push_back({text(name(kResourceNames, limit.resource)),
                             limit.needed.count(),
                             limit.available.count(),
                             limit.largest_term,
                             limit.cheapest_change,
                             limit.margin.count()});
  }
  answer.gpu = gpu_of(result.gpu);
  answer.host = {result.host.capacity.count(),
                 result.host.peak.count(),
                 result.host.pinned.count(),
                 result.host.load_peak.count(),
                 text(name(kPhaseNames, result.host.peak_phase))};
  answer.nvme_bytes = result.nvme.count();
  answer.step = step_of(result.step);
  if (result.job) {
    answer.job_steps = result.job->steps;
    answer.job_seconds = result.job->seconds().seconds();
  }
  answer.peak_allocated_bytes_interval = counts(result.peak_allocated_interval);
  answer.peak_reserved_bytes_interval = counts(result.peak_reserved_interval);
  answer.peak_total_bytes_interval = counts(result.peak_total_interval);
  answer.step_seconds_interval = {result.step_interval.low.seconds(),
                                  result.step_interval.high.seconds()};
  answer.parameters_total = result.parameters_total.count();
  answer.parameters_trainable = result.parameters_trainable.count();
  answer.parameters_active = result.parameters_active.count();
  answer.assumptions.assign(result.assumptions.begin(), result.assumptions.end());
  answer.warnings.assign(result.warnings.begin(), result.warnings.end());
  return answer;
}

}  // namespace

v1::Simulation answer_of(const StepResult& result) {
  return simulation_of(result, printed(to_json(result)));
}

v1::Simulation answer_of(const Plan& plan, const StepResult& result, tuner::Remedies remedies) {
  return simulation_of(result,
                       printed(tuner::simulated_document(plan, result, {}, std::move(remedies))));
}

v1::Fit answer_of(const tuner::FitAnswer& answer, const Scenario& scenario) {
  v1::Fit fit(printed(to_json(answer, scenario)));
  fit.fits = answer.recommended.has_value();
  for (const tuner::StrategyResult& row : answer.strategies)
    fit.strategies.push_back(strategy_of(row));
  fit.recommended = answer.recommended;
  if (answer.one_node) fit.one_node = strategy_of(*answer.one_node);
  if (answer.without_deepspeed) fit.without_deepspeed = strategy_of(*answer.without_deepspeed);
  if (answer.headroom) {
    fit.largest_micro_batch = answer.headroom->largest_micro_batch;
    fit.longest_sequence = answer.headroom->longest_sequence;
  }
  if (answer.needs.any()) fit.needs_packages = tuner::names_of(answer.needs);
  fit.remedies = remedies_of(answer.remedies);
  return fit;
}

v1::Tuning answer_of(const tuner::TuneAnswer& answer,
                     const tuner::TuneOptions& options,
                     std::optional<double> price) {
  v1::Tuning tuning(printed(to_json(answer, options, price)));
  if (answer.plan) {
    tuning.best = best_of(answer);
    tuning.result = answer_of(answer.result);
  }
  for (const tuner::FrontPoint& point : answer.pareto) {
    tuning.pareto.push_back(point_of(point, answer.scenario));
  }
  const tuner::SearchResult& search = answer.search;
  tuning.points = search.points;
  tuning.evaluated = search.evaluated;
  tuning.pruned = search.pruned;
  tuning.unseen = search.unseen;
  tuning.unseen_at_most = search.unseen_at_most;
  tuning.optimal = search.optimal;
  tuning.cut_by_time_limit = search.out_of_time;
  tuning.stopped = answer.interrupted;
  tuning.search_seconds = search.seconds;
  for (const auto& [reason, row] : search.tally) tuning.losses.push_back({reason, row.count});
  tuning.fewest_gpus = answer.fewest_gpus;
  if (answer.nearest) tuning.nearest_change = answer.nearest->change;
  tuning.remedies = remedies_of(answer.remedies);
  return tuning;
}

v1::Lint answer_of(const LintReport& report, const LintSubject& subject) {
  const Json document = to_json(report, subject.root);
  v1::Lint lint(printed(document));
  const std::vector<Json>& rows = document.find("findings")->items();
  for (std::size_t i = 0; i < report.findings.size(); ++i) {
    const Finding& finding = report.findings[i];
    const Place place = place_of(subject.root, finding.pointer);
    lint.findings.push_back({severity_of(finding.severity),
                             finding.pointer,
                             place.line,
                             place.column,
                             finding.code,
                             finding.message,
                             rows[i].find("cost")->as_string(),
                             finding.fix});
  }
  for (const SkippedRule& rule : report.skipped) {
    lint.skipped.push_back({rule.code, describe(rule.missing)});
  }
  return lint;
}

}  // namespace zeroplan::library
