// zeroplan watch: a run that goes on, from its log, beside what is predicted of it.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <ostream>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/diagnostic.hpp"
#include "cli/commands.hpp"
#include "cli/cost_options.hpp"
#include "cli/interrupt.hpp"
#include "cli/table.hpp"
#include "cli/write_file.hpp"
#include "evidence/importers/import.hpp"
#include "evidence/importers/run_summary.hpp"
#include "evidence/run_status.hpp"

namespace zeroplan::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

// Files of a run's folder that say how far it is have one of these names.
bool is_log(const fs::path& file) {
  const std::string name = file.filename().string();
  const std::string extension = file.extension().string();
  return extension == ".log" || extension == ".out" || extension == ".err" ||
         name == "trainer_log.jsonl" || name == "trainer_state.json" || name == "nohup.txt";
}

// Logs of a folder, and the newest of the states that checkpoints hold.
std::vector<std::string> logs_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> logs;
  std::pair<fs::file_time_type, std::string> state;
  constexpr int kDeepest = 2;
  fs::recursive_directory_iterator at(path, fs::directory_options::skip_permission_denied, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (at.depth() >= kDeepest) at.disable_recursion_pending();
    if (!at->is_regular_file(error) || !is_log(at->path())) continue;
    const std::string file = at->path().string();
    if (at->path().filename() == "trainer_state.json") {
      state = std::max(state, std::pair(at->last_write_time(error), file));
    } else {
      logs.push_back(file);
    }
  }
  std::sort(logs.begin(), logs.end());
  if (!state.second.empty()) logs.push_back(state.second);
  return logs;
}

// The text of a run so far; new where it has grown since it was last read.
class Source {
 public:
  Source(std::string path, const Scenario& given) : path_(std::move(path)), given_(given) {}

  bool is_piped() const { return path_ == "-"; }
  bool has_ended() const { return ended_; }
  // Why nothing is known of the run; empty where something is.
  const Phrase& problem() const { return problem_; }

  // Waits up to so many seconds for more of a pipe; a file is looked at once.
  std::optional<evidence::RunFindings> read(double seconds) {
    return is_piped() ? read_pipe(seconds) : read_files();
  }

 private:
  std::optional<evidence::RunFindings> read_pipe(double seconds) {
    const auto until = steady_clock::now() + std::chrono::duration<double>(seconds);
    const std::size_t before = text_.size();
    while (!ended_ && !InterruptGuard::flag()) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(until - steady_clock::now());
      pollfd input{STDIN_FILENO, POLLIN, 0};
      if (left.count() <= 0 || poll(&input, 1, static_cast<int>(left.count())) <= 0) break;
      char buffer[1 << 16];
      const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof buffer);
      if (count > 0) text_.append(buffer, static_cast<std::size_t>(count));
      ended_ = count == 0;
    }
    if (text_.size() == before) return std::nullopt;
    return found([&] { return evidence::import_bytes(text_, "standard input", given_); });
  }

  std::optional<evidence::RunFindings> read_files() {
    const std::vector<std::string> logs = logs_of(path_);
    std::set<std::pair<std::string, std::uintmax_t>> sizes;
    std::error_code error;
    for (const std::string& log : logs) sizes.emplace(log, fs::file_size(log, error));
    if (sizes == sizes_) return std::nullopt;
    sizes_ = std::move(sizes);
    std::optional<evidence::RunFindings> all;
    for (const std::string& log : logs) {
      auto one = found([&] { return evidence::import_file(log, given_); });
      if (one && all) all->merge(*one);
      if (one && !all) all = std::move(one);
    }
    return all;
  }

  // Nothing in a log that has just begun is no fault: the next look may find it.
  template <typename Import>
  std::optional<evidence::RunFindings> found(const Import& import) {
    try {
      evidence::ImportedFile file = import();
      problem_ = Phrase();
      return std::move(file.runs.front().findings);
    } catch (const InputError& error) {
      problem_ = error.diagnostics().front().got;
      return std::nullopt;
    }
  }

  std::string path_;
  const Scenario& given_;
  std::string text_;
  std::set<std::pair<std::string, std::uintmax_t>> sizes_;
  bool ended_ = false;
  Phrase problem_ = "nothing of the kind";
};

std::string said_in(const Scenario& scenario) {
  std::string said;
  for (const ScenarioKeyInfo& key : kScenarioKeys) {
    if (const ExplicitValue* value = scenario.find(key.key)) said += value->value.dump();
    said += "\n";
  }
  return said;
}

// Predicted once for what the log says, which may say more as it grows.
class Predictions {
 public:
  const evidence::ScenarioPrediction* of(const Scenario& scenario, std::string& refusal) {
    const std::string key = said_in(scenario);
    if (key != key_) {
      key_ = key;
      prediction_.reset();
      refusal_.clear();
      if (!evidence::missing_key(scenario)) {
        try {
          prediction_ = evidence::predict_scenario(scenario);
        } catch (const InputError& error) {
          refusal_ = to_string(error.diagnostics().front()).english();
        }
      }
    }
    refusal = refusal_;
    return prediction_ ? &*prediction_ : nullptr;
  }

 private:
  std::string key_, refusal_;
  std::optional<evidence::ScenarioPrediction> prediction_;
};

std::string number_text(evidence::Metric metric, double value) {
  using evidence::Metric;
  if (metric == Metric::step_seconds) return seconds_text(Seconds::of(value));
  if (metric <= Metric::host_peak_bytes) return gib_text(Bytes::nearest(value));
  return fixed_text(value, value < 100.0 ? 2 : 0);
}

// "peak allocated", "a step", "samples per second".
std::string what_is_measured(evidence::Metric metric) {
  if (metric == evidence::Metric::step_seconds) return "a step";
  std::string text = plain_name(name(metric));
  constexpr std::string_view kUnit = " bytes";
  if (text.ends_with(kUnit)) text.resize(text.size() - kUnit.size());
  return text;
}

Phrase metric_text(const evidence::ComparedMetric& one) {
  using evidence::Metric;
  const std::string measured = number_text(one.metric, one.measured);
  const std::string what = what_is_measured(one.metric);
  if (!one.predicted) return phrase("{}: {}", what, measured);
  const double low = one.predicted->low;
  const double high = one.predicted->high;
  return phrase("{}: {}, predicted {} ({:+.1f} %){}",
                what,
                measured,
                number_text(one.metric, one.predicted->value),
                100.0 * (one.predicted->value / one.measured - 1.0),
                one.measured < low || one.measured > high
                    ? phrase(", outside of its 90 % range, {} to {}",
                             number_text(one.metric, low),
                             number_text(one.metric, high))
                    : Phrase());
}

// One line of how far it is, and one for each thing that somebody would want to know.
std::vector<Phrase> lines_of(const evidence::RunStatus& status) {
  std::vector<Phrase> lines;
  if (status.progress) {
    Phrase line = status.progress->total
                      ? phrase("step {} of {}", status.progress->done, *status.progress->total)
                      : phrase("step {}", status.progress->done);
    if (status.seconds_left && *status.seconds_left > 0.0) {
      line.append(phrase(", {} left", hours_text(*status.seconds_left / 3600.0)));
    }
    lines.push_back(std::move(line));
  }
  for (const evidence::ComparedMetric& one : status.metrics) lines.push_back(metric_text(one));
  if (status.growth) {
    const std::string mib = fixed_text(status.growth->bytes_a_step / (1024.0 * 1024.0), 2);
    lines.push_back(status.growth->full_at_step
                        ? phrase("memory grows by {} MiB a step: the GPU is full at step {}",
                                 mib,
                                 *status.growth->full_at_step)
                        : phrase("memory grows by {} MiB a step", mib));
  }
  if (status.checkpoints > 0) {
    lines.push_back(
        phrase("checkpoints saved: {}, the last {}", status.checkpoints, status.last_checkpoint));
  }
  if (status.ran_out_of_memory) lines.push_back("it ran out of memory: zeroplan explain says why");
  return lines;
}

// A run that has come to its last step, or ran out of memory, is over.
bool is_over(const evidence::RunStatus& status) {
  const auto& progress = status.progress;
  return status.ran_out_of_memory ||
         (progress && progress->total && progress->done >= *progress->total);
}

class Watch {
 public:
  Watch(const Arguments& arguments, Streams streams)
      : arguments_(arguments),
        streams_(streams),
        words_(arguments.language),
        given_(scenario_of(arguments)),
        source_(arguments.positionals.front(), given_),
        seconds_(arguments.real("every", 0.1, 86400.0).value_or(10.0)) {}

  int run() {
    const InterruptGuard guard;
    const bool once = arguments_.has("once");
    for (;;) {
      const auto began = steady_clock::now();
      const auto findings = source_.read(seconds_);
      const std::chrono::duration<double> took = steady_clock::now() - began;
      if (findings) show(*findings);
      // A bar may be full that is not the run's: what still grows is not over.
      const bool is_done = !findings && status_ && is_over(*status_);
      if (once || is_done || source_.has_ended() || InterruptGuard::flag()) break;
      if (!status_) say_waiting();
      // A log is read whole: of a core a long one takes a twentieth.
      if (!source_.is_piped()) wait(std::max(seconds_, 20.0 * took.count()));
    }
    return finish();
  }

 private:
  void show(const evidence::RunFindings& findings) {
    auto measured = evidence::measurement_of(findings, id(), "watch");
    if (!measured) measured = evidence::Measurement{.id = id(), .scenario = findings.scenario()};
    std::string refusal;
    const evidence::ScenarioPrediction* prediction = predictions_.of(measured->scenario, refusal);
    evidence::RunStatus status = evidence::status_of(findings, *measured, prediction);
    if (!refusal.empty()) status.not_stated = refusal;
    std::string text;
    for (const Phrase& line : lines_of(status)) {
      text += (text.empty() ? "" : "  ") + words_.text(line + "\n");
    }
    if (!status.not_stated.empty() && status.not_stated != told_) {
      told_ = status.not_stated;
      streams_.log << words_.text(phrase("nothing is predicted: {}", told_) + "\n");
    }
    if (arguments_.json) text = to_json(status).dump() + "\n";
    if (text != shown_) streams_.out << text << std::flush;
    shown_ = std::move(text);
    status_ = std::move(status);
    measured_ = std::move(measured);
  }

  // A path with a typo and a log that has not begun look alike.
  void say_waiting() {
    const Phrase text = phrase("waiting for {}: {}", id(), source_.problem());
    if (text.english() == told_) return;
    told_ = text.english();
    streams_.log << words_.text(text + "\n") << std::flush;
  }

  // In parts, so that Ctrl-C ends it at once.
  static void wait(double seconds) {
    const auto until = steady_clock::now() + std::chrono::duration<double>(seconds);
    while (steady_clock::now() < until && !InterruptGuard::flag()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  int finish() {
    if (!status_) {
      if (const auto signal = interrupted()) return *signal;
      throw InputError({arguments_.positionals.front(),
                        "",
                        "a training log, a Trainer's state, or a folder with one",
                        source_.problem(),
                        "docs/import.md lists the formats, each with a line of it"});
    }
    const auto output = arguments_.text("output");
    const bool measures = !status_->metrics.empty();
    if (output && measures) {
      write_file(*output, to_json(*measured_).dump() + "\n");
      streams_.log << words_.text(phrase("wrote {}: zeroplan validate reads it", *output) + "\n");
    }
    if (const auto signal = interrupted()) return *signal;
    return status_->ran_out_of_memory ? kAnswerIsNo : kDone;
  }

  std::string id() const { return source_.is_piped() ? "stdin" : arguments_.positionals.front(); }

  const Arguments& arguments_;
  Streams streams_;
  Translation words_;
  Scenario given_;
  Source source_;
  double seconds_;
  Predictions predictions_;
  std::optional<evidence::RunStatus> status_;
  std::optional<evidence::Measurement> measured_;
  std::string shown_, told_;
};

}  // namespace

int run_watch(const Arguments& arguments, Streams streams) {
  return Watch(arguments, streams).run();
}

}  // namespace zeroplan::cli
