#include "evidence/run_status.hpp"

#include <algorithm>
#include <cmath>

namespace zeroplan::evidence {
namespace {

// Samples of the rank or GPU that held most at last.
std::vector<double> fullest_rank(const Series& series) {
  std::optional<int> rank;
  double most = 0.0;
  for (const Sample& sample : series.samples) {
    if (sample.rank == rank) most = sample.value;
    if (sample.value <= most) continue;
    most = sample.value;
    rank = sample.rank;
  }
  std::vector<double> values;
  for (const Sample& sample : series.samples) {
    if (sample.rank == rank) values.push_back(sample.value);
  }
  return values;
}

// The growth from sample to sample; nothing where there is none.
std::optional<double> slope_of(const std::vector<double>& values, double half_digit) {
  constexpr std::size_t kLeastSamples = 8;
  constexpr std::size_t kMostPoints = 64;
  constexpr double kRise = 0.9;         // of the pairs
  constexpr double kLeastRise = 0.005;  // of what is held, over what is looked at
  if (values.size() < kLeastSamples) return std::nullopt;
  const std::size_t first = values.size() / 2;
  const std::size_t stride = std::max<std::size_t>(1, (values.size() - first) / kMostPoints);
  std::vector<double> slopes;
  std::size_t rises = 0;
  for (std::size_t i = first; i < values.size(); i += stride) {
    for (std::size_t j = i + stride; j < values.size(); j += stride) {
      slopes.push_back((values[j] - values[i]) / static_cast<double>(j - i));
      if (values[j] > values[i]) ++rises;
    }
  }
  if (slopes.empty()) return std::nullopt;
  if (static_cast<double>(rises) < kRise * static_cast<double>(slopes.size())) return std::nullopt;
  const auto middle = slopes.begin() + static_cast<std::ptrdiff_t>(slopes.size() / 2);
  std::nth_element(slopes.begin(), middle, slopes.end());
  const double rise = *middle * static_cast<double>(values.size() - 1 - first);
  const double least = std::max(4.0 * half_digit, kLeastRise * values.back());
  return rise > least ? std::optional(*middle) : std::nullopt;
}

// All that stands on the GPU: as nvidia-smi has it, else with what is predicted beside the
// allocator.
double in_use(const RunFindings& findings, const ScenarioPrediction& prediction) {
  const GpuMemory& gpu = prediction.result.gpu;
  const auto outside =
      static_cast<double>(at(gpu.breakdown_at_peak, MemoryCategory::cuda_context).count());
  double most = 0.0;
  for (const Series& series : findings.series()) {
    const Metric metric = series.info.metric;
    const bool is_total = metric == Metric::peak_total_bytes;
    if (!is_total && metric != Metric::peak_reserved_bytes &&
        metric != Metric::peak_allocated_bytes) {
      continue;
    }
    for (const Sample& sample : series.samples) {
      most = std::max(most, sample.value + (is_total ? 0.0 : outside));
    }
  }
  return most > 0.0 ? most : static_cast<double>(gpu.peak_total.count());
}

// Memory, and the first of these that was measured.
constexpr Metric kTimes[] = {
    Metric::step_seconds, Metric::tokens_per_second_per_gpu, Metric::samples_per_second};

}  // namespace

std::optional<MemoryGrowth> memory_growth(const RunFindings& findings,
                                          const ScenarioPrediction* prediction) {
  if (!findings.progress || findings.progress->done <= 0) return std::nullopt;
  const auto done = static_cast<double>(findings.progress->done);
  for (const Metric metric : {Metric::static_allocated_bytes, Metric::peak_total_bytes}) {
    for (const Series& series : findings.series()) {
      if (series.info.metric != metric || series.info.whole_run) continue;
      const std::vector<double> values = fullest_rank(series);
      const auto slope = slope_of(values, series.info.half_digit);
      if (!slope) continue;
      MemoryGrowth growth{*slope * static_cast<double>(values.size()) / done, std::nullopt};
      if (prediction != nullptr) {
        const auto capacity = static_cast<double>(prediction->result.gpu.capacity.count());
        const double left = std::max(0.0, capacity - in_use(findings, *prediction));
        growth.full_at_step =
            findings.progress->done + static_cast<std::int64_t>(left / growth.bytes_a_step);
      }
      return growth;
    }
  }
  return std::nullopt;
}

RunStatus status_of(const RunFindings& findings,
                    const Measurement& measured,
                    const ScenarioPrediction* prediction) {
  RunStatus status;
  status.progress = findings.progress;
  status.checkpoints = findings.checkpoints;
  status.last_checkpoint = findings.last_checkpoint;
  status.ran_out_of_memory = findings.fits && !*findings.fits;
  status.growth = memory_growth(findings, prediction);
  if (prediction == nullptr) {
    status.not_stated = missing_key(measured.scenario).value_or("");
  }
  const auto compare = [&](Metric metric) {
    const auto value = measured.measured.number(metric);
    if (!value) return false;
    status.metrics.push_back({metric, *value, std::nullopt});
    if (prediction != nullptr) status.metrics.back().predicted = prediction->of(metric);
    return true;
  };
  for (const Metric metric : {Metric::peak_allocated_bytes,
                              Metric::peak_reserved_bytes,
                              Metric::peak_total_bytes,
                              Metric::static_allocated_bytes,
                              Metric::host_peak_bytes}) {
    compare(metric);
  }
  std::any_of(std::begin(kTimes), std::end(kTimes), compare);
  const auto step = measured.measured.number(Metric::step_seconds);
  if (step && status.progress && status.progress->total) {
    status.seconds_left = *step * static_cast<double>(std::max<std::int64_t>(
                                      0, *status.progress->total - status.progress->done));
  }
  return status;
}

Json to_json(const RunStatus& status) {
  Json document = Json::object({{"schema", "zeroplan.watch/1"},
                                {"steps_done", Json()},
                                {"steps_total", Json()},
                                {"seconds_left", Json()}});
  if (status.progress) {
    document["steps_done"] = status.progress->done;
    if (status.progress->total) document["steps_total"] = *status.progress->total;
  }
  if (status.seconds_left) document["seconds_left"] = *status.seconds_left;
  Json metrics = Json::object();
  for (const ComparedMetric& one : status.metrics) {
    Json row = Json::object({{"measured", one.measured}, {"predicted", Json()}});
    if (one.predicted) {
      row["predicted"] = one.predicted->value;
      row["low"] = one.predicted->low;
      row["high"] = one.predicted->high;
    }
    metrics[std::string(name(one.metric))] = std::move(row);
  }
  document["metrics"] = std::move(metrics);
  document["growth"] = Json();
  if (status.growth) {
    const auto& full = status.growth->full_at_step;
    document["growth"] = Json::object({{"bytes_a_step", status.growth->bytes_a_step},
                                       {"full_at_step", full ? Json(*full) : Json()}});
  }
  document["checkpoints"] = status.checkpoints;
  document["last_checkpoint"] =
      status.last_checkpoint.empty() ? Json() : Json(status.last_checkpoint);
  document["ran_out_of_memory"] = status.ran_out_of_memory;
  document["not_stated"] = status.not_stated.empty() ? Json() : Json(status.not_stated);
  return document;
}

}  // namespace zeroplan::evidence
