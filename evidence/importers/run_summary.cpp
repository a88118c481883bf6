#include "evidence/importers/run_summary.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "model/hardware/cluster.hpp"
#include "model/hardware/hardware.hpp"
#include "model/hardware/known_hardware.hpp"

namespace zeroplan::evidence {
namespace {

bool is_bytes(Metric metric) {
  return metric == Metric::peak_allocated_bytes || metric == Metric::peak_reserved_bytes ||
         metric == Metric::peak_total_bytes || metric == Metric::static_allocated_bytes ||
         metric == Metric::host_peak_bytes;
}

bool takes_highest(Metric metric) {
  return is_bytes(metric) && metric != Metric::static_allocated_bytes;
}

// Linear between the two nearest of ascending values.
double quantile(const std::vector<double>& ascending, double share) {
  const double at = share * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, ascending.size() - 1);
  const double part = at - static_cast<double>(below);
  return ascending[below] * (1.0 - part) + ascending[above] * part;
}

std::string rank_text(const SeriesInfo& info, std::optional<int> rank) {
  return rank ? fmt::format(", {} {}", info.who, *rank) : "";
}

// Half a digit as a relative standard deviation: a uniform error.
double of_rounding(double half_digit, double value) { return half_digit / std::sqrt(3.0) / value; }

// Ten digits: sums of printed numbers have no more, and a file with 3.2195400000000003 is no joy.
double shortened(double value) {
  const std::string text = fmt::format("{:.10g}", value);
  double result = value;
  std::from_chars(text.data(), text.data() + text.size(), result);
  return result;
}

class Summary {
 public:
  Summary(const RunFindings& findings, Measurement& measurement)
      : findings_(findings), measurement_(measurement) {}

  void add(Metric metric);
  void add_notes();

 private:
  void add_peak(Metric metric, const std::vector<const Series*>& sources);
  void add_held(const Series& series);
  void add_steps(const Series& series);
  void note(std::string text) { notes_.push_back(std::move(text)); }
  void put(Metric metric, double value, double deviation);

  const RunFindings& findings_;
  Measurement& measurement_;
  std::vector<std::string> notes_;
};

// A log may hold any number; what no reader of measurements would take is left out.
void Summary::put(Metric metric, double value, double deviation) {
  if (!is_possible(metric, value)) {
    note(fmt::format("{}: {:.3g} left out, which cannot be measured", name(metric), value));
    return;
  }
  measurement_.measured.set(metric, is_bytes(metric) ? std::round(value) : shortened(value));
  constexpr double kLeast = 5e-5;
  if (deviation < kLeast) return;
  const double digits = std::min(1.0, std::round(deviation * 1e4) / 1e4);
  measurement_.uncertainty.by_metric[metric] = digits;
}

void Summary::add(Metric metric) {
  std::vector<const Series*> sources;
  for (const Series& series : findings_.series()) {
    if (series.info.metric == metric && !series.samples.empty()) sources.push_back(&series);
  }
  if (sources.empty()) return;
  std::stable_sort(sources.begin(), sources.end(), [](const Series* a, const Series* b) {
    return a->info.preference < b->info.preference;
  });
  if (takes_highest(metric)) {
    add_peak(metric, sources);
  } else if (is_bytes(metric)) {
    add_held(*sources.front());
  } else {
    add_steps(*sources.front());
  }
}

void Summary::add_peak(Metric metric, const std::vector<const Series*>& sources) {
  const Series* from = nullptr;
  const Sample* largest = nullptr;
  for (const Series* series : sources) {
    for (const Sample& sample : series->samples) {
      if (largest != nullptr && sample.value <= largest->value) continue;
      largest = &sample;
      from = series;
    }
  }
  put(metric, largest->value, of_rounding(from->info.half_digit, largest->value));
  note(fmt::format("{}: the largest of {} ({}{})",
                   name(metric),
                   from->samples.size(),
                   from->info.from,
                   rank_text(from->info, largest->rank)));
}

void Summary::add_held(const Series& series) {
  std::map<int, std::vector<double>> by_rank;
  for (const Sample& sample : series.samples)
    by_rank[sample.rank.value_or(0)].push_back(sample.value);
  double worst = 0.0;
  for (auto& [rank, values] : by_rank) {
    values.erase(values.begin(),
                 values.begin() + static_cast<std::ptrdiff_t>(warm_up_steps(values.size())));
    std::sort(values.begin(), values.end());
    worst = std::max(worst, quantile(values, 0.5));
  }
  put(series.info.metric, worst, of_rounding(series.info.half_digit, worst));
}

void Summary::add_steps(const Series& series) {
  const SeriesInfo& info = series.info;
  const auto lowest = std::min_element(
      series.samples.begin(), series.samples.end(), [](const Sample& a, const Sample& b) {
        return a.rank.value_or(-1) < b.rank.value_or(-1);
      });
  std::vector<double> values;
  for (const Sample& sample : series.samples) {
    if (sample.rank == lowest->rank) values.push_back(sample.value);
  }
  const std::string rank = rank_text(info, lowest->rank);
  if (info.whole_run) {
    put(info.metric, values.back(), of_rounding(info.half_digit, values.back()));
    note(fmt::format("{}: {}", name(info.metric), info.from));
    return;
  }
  const std::size_t all = values.size();
  const std::size_t skipped = warm_up_steps(all);
  values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(skipped));
  std::sort(values.begin(), values.end());
  const double median = quantile(values, 0.5);
  const double low = quantile(values, 0.25);
  const double high = quantile(values, 0.75);
  constexpr double kQuartilesOfNormal = 1.349;  // standard deviations between them
  constexpr std::size_t kLeastForSpread = 4;
  const double spread =
      values.size() >= kLeastForSpread ? (high - low) / kQuartilesOfNormal / median : 0.0;
  put(info.metric, median, std::hypot(spread, of_rounding(info.half_digit, median)));
  if (all == 1) {
    note(fmt::format("{}: one value, warm-up included ({}{})", name(info.metric), info.from, rank));
    return;
  }
  const std::string quartiles = values.size() < kLeastForSpread
                                    ? ""
                                    : fmt::format(", quartiles {:.5g} and {:.5g}", low, high);
  note(fmt::format("{}: median of {} ({}{}; the first {} of {} left out){}",
                   name(info.metric),
                   values.size(),
                   info.from,
                   rank,
                   skipped,
                   all,
                   quartiles));
}

void Summary::add_notes() {
  for (const std::string& text : findings_.notes()) note(text);
  for (const std::string& text : notes_) {
    measurement_.notes += (measurement_.notes.empty() ? "" : "; ") + text;
  }
}

// --- the scenario

std::string gpus_text(std::int64_t count) {
  return count == 1 ? "1 GPU" : fmt::format("{} GPUs", count);
}

// What the file says of the number of GPUs where the given cluster has another.
std::string other_gpus(const RunFindings& findings, const ExplicitValue& said) {
  if (!findings.gpus) return "";
  try {
    const Cluster cluster = parse_cluster(said.value, said.origin.file, said.origin.pointer);
    const std::int64_t given = cluster.total_gpus();
    if (given == *findings.gpus) return "";
    return fmt::format("it ran on {}, the cluster has {}", gpus_text(*findings.gpus), given);
  } catch (const InputError&) {
    return "";  // whoever predicts it says what is wrong with the cluster
  }
}

// The cluster from its parts; a note where they do not make one.
std::string add_cluster(const RunFindings& findings, Scenario& scenario) {
  if (const ExplicitValue* said = scenario.find(ScenarioKey::cluster))
    return other_gpus(findings, *said);
  const auto& gpus = findings.gpus;
  const auto& per_node = findings.gpus_per_node;
  if (!findings.gpu_name) return gpus ? "it ran on " + gpus_text(*gpus) : "";
  const std::string name = printable(*findings.gpu_name);
  constexpr std::int64_t kUsualNode = 8;
  constexpr std::int64_t kMost = 1'000'000;
  std::int64_t in_node = per_node.value_or(gpus && *gpus <= kUsualNode ? *gpus : 0);
  std::int64_t nodes = gpus && in_node > 0 ? *gpus / in_node : 1;
  const bool whole = in_node > 0 && in_node <= kMost && nodes > 0 && nodes <= kMost &&
                     (!gpus || nodes * in_node == *gpus);
  if (!whole)
    return gpus ? fmt::format("it ran on {} ({})", gpus_text(*gpus), name) : "GPU: " + name;
  if (!find_gpu(*findings.gpu_name, in_node)) return fmt::format("GPU \"{}\" is not known", name);
  scenario.set(
      ScenarioKey::cluster,
      Json::object({{"nodes", nodes}, {"gpus_per_node", in_node}, {"gpu", *findings.gpu_name}}),
      {findings.file(), ""});
  return per_node ? "" : fmt::format("{} taken as one node", gpus_text(in_node));
}

bool has_micro_batch(const Scenario& scenario) {
  if (scenario.find(ScenarioKey::micro_batch_size) != nullptr) return true;
  const ExplicitValue* config = scenario.find(ScenarioKey::ds_config);
  if (config == nullptr || !config->value.is_object()) return false;
  const Json* size = config->value.find("train_micro_batch_size_per_gpu");
  return size != nullptr && size->is_number();
}

// What `validate` needs and nobody said: "not stated: model (--model), ...".
std::string missing(const Scenario& scenario) {
  std::string text;
  const auto add = [&](ScenarioKey key, bool there) {
    if (there) return;
    const std::string_view flag = info(key).flag;
    text += fmt::format("{}{}", text.empty() ? "not stated: " : ", ", flag);
  };
  for (const ScenarioKey key :
       {ScenarioKey::model, ScenarioKey::cluster, ScenarioKey::sequence_length}) {
    add(key, scenario.find(key) != nullptr);
  }
  add(ScenarioKey::micro_batch_size, has_micro_batch(scenario));
  return text;
}

}  // namespace

std::size_t warm_up_steps(std::size_t steps) {
  constexpr std::size_t kFew = 10;
  constexpr std::size_t kMost = 10;
  if (steps < 2) return 0;
  return steps < kFew ? 1 : std::min(steps / 5, kMost);
}

std::optional<Measurement> measurement_of(const RunFindings& findings,
                                          const std::string& id,
                                          const std::string& source) {
  Measurement measurement;
  measurement.id = id;
  measurement.source = source;
  measurement.scenario = findings.scenario();
  measurement.parts = findings.parts;
  Summary summary(findings, measurement);
  for (std::size_t i = 0; i < kMetricCount; ++i) summary.add(static_cast<Metric>(i));
  bool timed = false;
  for (const Metric metric : {Metric::step_seconds,
                              Metric::samples_per_second,
                              Metric::tokens_per_second_per_gpu,
                              Metric::model_tflops_per_gpu,
                              Metric::hardware_tflops_per_gpu}) {
    timed |= measurement.measured.has(metric);
  }
  // Whoever timed steps made them.
  if (findings.fits || timed) {
    measurement.measured.set(Metric::fits, findings.fits.value_or(true) ? 1.0 : 0.0);
  }
  if (measurement.measured.empty() && measurement.parts.empty()) return std::nullopt;
  const std::string cluster = add_cluster(findings, measurement.scenario);
  summary.add_notes();
  for (const std::string& text :
       {cluster, measurement.measured.empty() ? std::string() : missing(measurement.scenario)}) {
    if (!text.empty()) measurement.notes += (measurement.notes.empty() ? "" : "; ") + text;
  }
  return measurement;
}

}  // namespace zeroplan::evidence
