#include "evidence/validate.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <new>

#include <fmt/format.h>

#include "base/defect.hpp"
#include "base/parallel_for.hpp"
#include "evidence/scenario_prediction.hpp"

namespace zeroplan::evidence {
namespace {

// --- one scenario, and every line that measured it
// -----------------------------------------------------

struct Line {
  const MeasurementFile* file = nullptr;
  const Measurement* measurement = nullptr;
  std::size_t scenario = 0;
};

struct Work {
  const Scenario* scenario = nullptr;
  ScenarioPredictionOptions options;
  bool needs_micro_batch = false;
  std::optional<ScenarioPrediction> prediction;
  std::string reason;  // why there is none
};

bool only_measures_micro_batch(const Measured& measured) {
  for (std::size_t i = 0; i < kMetricCount; ++i) {
    const Metric metric = static_cast<Metric>(i);
    if (metric != Metric::max_micro_batch_size && measured.has(metric)) return false;
  }
  return true;
}

std::string reason_of(const InputError& error) {
  const Diagnostic& first = error.diagnostics().front();
  if (first.got.english().ends_with("not modelled yet")) return first.got;
  return (first.pointer.empty() ? "" : first.pointer + ": ") + "expected " + first.expected +
         ", got " + first.got;
}

void predict(Work& work) {
  if (const auto missing = missing_key(*work.scenario, work.needs_micro_batch)) {
    work.reason = *missing;
    return;
  }
  try {
    // A defect that one scenario meets must not take the others with it.
    const Phrase defect =
        defect_in([&] { work.prediction = predict_scenario(*work.scenario, work.options); });
    work.reason = defect.english();
  } catch (const InputError& error) {
    work.reason = reason_of(error);
  } catch (const SizeOverflow&) {
    work.reason = "sizes too large to count";
  } catch (const std::bad_alloc&) {
    work.reason = "out of memory";
  }
}

// --- why a prediction may be wrong
// ---------------------------------------------------------------------

std::string gib(Bytes bytes) { return fmt::format("{:.1f} GiB", bytes.gib()); }

// "activations 17.2, parameters 8.1 of 30.0 GiB in backward".
std::string largest_categories(const GpuMemory& gpu) {
  std::vector<std::size_t> order(kMemoryCategoryCount);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return gpu.breakdown_at_peak[a] > gpu.breakdown_at_peak[b];
  });
  const auto part = [&](std::size_t category) {
    return fmt::format(
        "{} {:.1f}", kMemoryCategoryNames[category], gpu.breakdown_at_peak[category].gib());
  };
  return fmt::format("{}, {} of {} in {}",
                     part(order[0]),
                     part(order[1]),
                     gib(gpu.peak_total),
                     name(kPhaseNames, gpu.peak_phase));
}

std::string largest_times(const StepTime& step) {
  const auto share = [&](Seconds part) { return 100.0 * (part / step.total); };
  return fmt::format(
      "bound by {}; forward {:.0f} %, backward {:.0f} %, optimizer {:.0f} %; exposed communication "
      "{:.0f} %, offload {:.0f} %",
      name(kBoundNames, step.bound),
      share(step.forward),
      share(step.backward),
      share(step.optimizer),
      share(step.exposed_communication),
      share(step.exposed_offload));
}

std::string why(const ScenarioPrediction& prediction, Metric metric) {
  const StepResult& result = prediction.result;
  std::string text;
  if (metric == Metric::host_peak_bytes) {
    text = fmt::format("host peak in {}, pinned {}",
                       name(kPhaseNames, result.host.peak_phase),
                       gib(result.host.pinned));
  } else if (metric == Metric::fits && !result.limits.empty()) {
    const Limit& limit = result.limits.front();
    text = fmt::format("{}: {} of {}, largest {}",
                       name(kResourceNames, limit.resource),
                       gib(limit.needed),
                       gib(limit.available),
                       limit.largest_term);
  } else if (is_memory(metric) || metric == Metric::fits ||
             metric == Metric::max_micro_batch_size) {
    text = largest_categories(result.gpu);
  } else {
    text = largest_times(result.step);
  }
  const auto list = [&](const char* title, const std::vector<std::string>& items) {
    for (std::size_t i = 0; i < items.size(); ++i) text += (i == 0 ? title : ", ") + items[i];
  };
  list("; not stated: ", prediction.not_stated);
  if (metric != Metric::fits) list("; likelier of what ran: ", prediction.likely_values);
  return text;
}

// --- rows
// ----------------------------------------------------------------------------------------------

// The share of the GPU that stayed free: from what nvidia-smi showed, else from what the allocator
// had reserved and the context that is predicted.
double free_share(const Measured& measured, const StepResult& result) {
  Bytes used;
  if (measured.has(Metric::peak_total_bytes)) {
    used = measured.bytes(Metric::peak_total_bytes);
  } else if (measured.has(Metric::peak_reserved_bytes)) {
    used = measured.bytes(Metric::peak_reserved_bytes) +
           at(result.gpu.breakdown_at_peak, MemoryCategory::cuda_context);
  } else {
    return 0.0;
  }
  return std::max(0.0, 1.0 - used / result.gpu.capacity);
}

ValidatedRow row_of(const Line& line, const ScenarioPrediction& prediction, Metric metric) {
  const Measurement& measurement = *line.measurement;
  ValidatedRow row;
  row.file = line.file->file;
  row.id = measurement.id;
  row.source = measurement.source;
  row.tier = measurement.tier;
  row.strategy = prediction.strategy;
  row.scenario = line.scenario;
  row.metric = metric;
  row.probability = prediction.fit_probability;
  row.free_share = free_share(measurement.measured, prediction.result);
  row.step_seconds = prediction.result.step.total.seconds();
  row.why = why(prediction, metric);
  if (metric == Metric::fits) {
    const bool ran = measurement.measured.fits();
    row.measured = ran ? 1.0 : 0.0;
    row.predicted = prediction.fits ? 1.0 : 0.0;
    row.inside_interval = (row.probability >= 0.5) == ran;
    return row;
  }
  const PredictedMetric& predicted = *prediction.of(metric);
  row.measured = *measurement.measured.number(metric);
  row.predicted = predicted.value;
  if (row.measured > 0.0) row.error = (row.predicted - row.measured) / row.measured;
  row.low = predicted.low;
  row.high = predicted.high;
  row.inside_interval = row.low <= row.measured && row.measured <= row.high;
  const auto& likely = prediction.likely[static_cast<std::size_t>(metric)];
  row.likely = likely ? likely->value : row.predicted;
  return row;
}

void add_rows(const Line& line, const Work& work, ValidationReport& report) {
  const Measurement& measurement = *line.measurement;
  const auto skip = [&](std::string reason) {
    report.skipped.push_back(
        {line.file->file, measurement.id, measurement.source, std::move(reason)});
  };
  if (!work.prediction) return skip(work.reason);
  for (std::size_t i = 0; i < kMetricCount; ++i) {
    const Metric metric = static_cast<Metric>(i);
    if (!measurement.measured.has(metric)) continue;
    if (metric != Metric::fits && !work.prediction->of(metric)) {
      skip(std::string(name(metric)) + " is not predicted for this scenario");
      continue;
    }
    report.rows.push_back(row_of(line, *work.prediction, metric));
  }
}

void add_summary(ValidationReport& report) {
  std::vector<std::string> sources = {"*"};
  std::map<std::string, std::vector<ValidatedRow>> by_source;
  for (const ValidatedRow& row : report.rows) {
    auto& rows = by_source[row.source];
    if (rows.empty()) sources.push_back(row.source);
    rows.push_back(row);
  }
  by_source["*"] = report.rows;
  for (const std::string& source : sources) {
    std::map<Metric, std::vector<ValidatedRow>> by_metric;
    for (ValidatedRow& row : scored_rows(by_source[source])) {
      by_metric[row.metric].push_back(std::move(row));
    }
    for (const auto& [metric, rows] : by_metric) {
      report.summary.push_back({metric, source, summarize(rows)});
    }
  }
}

}  // namespace

ValidationReport validate(const std::vector<MeasurementFile>& files,
                          const ValidateOptions& options) {
  ValidationReport report;
  std::map<std::string, std::size_t> known;
  std::vector<Line> lines;
  std::vector<Work> works;
  for (const MeasurementFile& file : files) {
    report.bad_lines.insert(report.bad_lines.end(), file.bad_lines.begin(), file.bad_lines.end());
    for (const Measurement& measurement : file.measurements) {
      if (!options.tiers.empty() &&
          (measurement.tier.empty() || options.tiers.find(measurement.tier) == std::string::npos)) {
        continue;
      }
      if (measurement.measured.empty()) {
        report.skipped.push_back({file.file,
                                  measurement.id,
                                  measurement.source,
                                  "collectives and kernels, no metric of a step"});
        continue;
      }
      const auto [at, is_new] = known.emplace(identity_of(measurement), works.size());
      if (is_new) works.emplace_back().scenario = &measurement.scenario;
      Work& work = works[at->second];
      const Measured& measured = measurement.measured;
      work.options.confidence = options.confidence;
      work.options.rank = measurement.rank;
      work.options.host_memory |= measured.has(Metric::host_peak_bytes);
      work.options.max_micro_batch_size |= measured.has(Metric::max_micro_batch_size);
      work.needs_micro_batch |= !only_measures_micro_batch(measured);
      lines.push_back({&file, &measurement, at->second});
    }
  }
  parallel_for(works.size(), options.jobs, [&](std::size_t i) { predict(works[i]); });
  for (const Line& line : lines) add_rows(line, works[line.scenario], report);
  report.scenarios = static_cast<std::size_t>(std::count_if(
      works.begin(), works.end(), [](const Work& work) { return work.prediction.has_value(); }));
  add_summary(report);
  return report;
}

}  // namespace zeroplan::evidence
