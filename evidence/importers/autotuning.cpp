#include "evidence/importers/autotuning.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "base/described.hpp"
#include "base/json.hpp"
#include "evidence/oom_text.hpp"

namespace zeroplan::evidence {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAutotuner = "DeepSpeed's autotuner";
constexpr SeriesInfo kAutotunerStep{Metric::step_seconds, kAutotuner, 2, 0.0, true};
constexpr SeriesInfo kRate{Metric::samples_per_second, kAutotuner, 2, 0.0, true};

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// The document, or nothing: what is wrong with it is a bad line of the findings.
std::optional<Json> read_document(const fs::path& path, RunFindings& findings) {
  if (!is_there(path)) return std::nullopt;
  try {
    Json root = read_json_file(path.string()).root;
    if (root.is_object()) return root;
    findings.bad_lines().push_back({path.string(), "", "an object", described(root), ""});
  } catch (const InputError& error) {
    findings.bad_lines().insert(
        findings.bad_lines().end(), error.diagnostics().begin(), error.diagnostics().end());
  }
  return std::nullopt;
}

std::optional<double> positive(const Json& document, std::string_view key) {
  const Json* value = document.find(key);
  if (value == nullptr || !value->is_number() || !(value->as_number() > 0.0)) return std::nullopt;
  return value->as_number();
}

void read_experiment(const Json& experiment, RunFindings& findings) {
  findings.state(ScenarioKey::engine, "deepspeed", {});
  if (const Json* config = experiment.find("ds_config"); config != nullptr && config->is_object()) {
    Json plain = *config;
    plain.erase("autotuning");  // says how to tune, not how to train
    // "1" and "auto" stay with the configuration; the number is the scenario's, too.
    const Json* batch = plain.find("train_micro_batch_size_per_gpu");
    if (batch != nullptr && batch->is_integer()) {
      findings.state(ScenarioKey::micro_batch_size, batch->dump(), {});
    }
    const Json* steps = plain.find("gradient_accumulation_steps");
    if (steps != nullptr && steps->is_integer()) {
      findings.state(ScenarioKey::gradient_accumulation_steps, steps->dump(), {});
    }
    findings.state_value(ScenarioKey::ds_config, std::move(plain), {});
  }
  const auto gpus = positive(experiment, "num_gpus");
  const auto nodes = positive(experiment, "num_nodes");
  constexpr double kMost = 1e6;
  if (gpus && nodes && *gpus <= kMost && *nodes <= kMost) {
    findings.gpus_per_node = static_cast<std::int64_t>(*gpus);
    findings.gpus = static_cast<std::int64_t>(*gpus) * static_cast<std::int64_t>(*nodes);
  }
}

void read_metrics(const Json& metrics, RunFindings& findings) {
  const auto latency = positive(metrics, "latency");
  const auto throughput = positive(metrics, "throughput");
  if (!latency) {
    findings.bad(LogPlace{}, "metrics.json with \"latency\"", described(metrics).english());
    return;
  }
  constexpr double kMicro = 1e-6;
  const double step = *latency * kMicro;
  findings.sample(kAutotunerStep, step, LogPlace{});
  if (throughput) {
    // Samples of a step are a whole number; in old releases a thousandth of one.
    const double batch = *throughput * step;
    constexpr double kOldScale = 1000.0;
    const bool old = batch < 0.5;
    findings.sample(kRate, *throughput * (old ? kOldScale : 1.0), LogPlace{});
    if (old) findings.note("throughput taken 1000 times: metrics.json of DeepSpeed before 0.8");
  }
  findings.note("the autotuner's timers leave out what the loop does between the calls");
}

}  // namespace

std::vector<std::string> autotuning_experiments(const std::string& path) {
  std::vector<std::string> folders;
  std::error_code error;
  if (is_there(fs::path(path) / "exp.json")) folders.push_back(path);
  fs::recursive_directory_iterator entries(
      path, fs::directory_options::skip_permission_denied, error);
  constexpr int kDeepest = 4;
  constexpr std::size_t kMost = 100'000;
  for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    if (entries.depth() >= kDeepest) entries.disable_recursion_pending();
    if (entries->is_directory(error) && is_there(entries->path() / "exp.json")) {
      folders.push_back(entries->path().string());
    }
    if (folders.size() >= kMost) break;
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

AutotuningExperiment read_autotuning_experiment(const std::string& folder, RunFindings given) {
  AutotuningExperiment result{fs::path(folder).filename().string(), std::move(given)};
  RunFindings& findings = result.findings;
  const fs::path path(folder);
  if (const auto experiment = read_document(path / "exp.json", findings)) {
    const Json* name = experiment->find("name");
    if (name != nullptr && name->is_string()) result.name = name->as_string();
    read_experiment(*experiment, findings);
  }
  if (const auto metrics = read_document(path / "metrics.json", findings)) {
    read_metrics(*metrics, findings);
  }
  constexpr std::int64_t kLargestLog = std::int64_t{256} << 20;
  for (const char* const log : {"stderr.log", "stdout.log"}) {
    if (!is_there(path / log)) continue;
    const std::vector<OomEvent> events =
        read_oom_text(read_text_file((path / log).string(), kLargestLog));
    if (events.empty()) continue;
    findings.fits = false;
    findings.note(fmt::format(
        "it ran out of memory ({}, {})", zeroplan::name(kOomKindNames, events.front().kind), log));
    break;
  }
  return result;
}

}  // namespace zeroplan::evidence
