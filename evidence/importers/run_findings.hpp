// What the lines of one training run say, gathered by the importers and summed up by
// run_summary.hpp: samples of metrics, facts of the scenario, timings of parts, notes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "evidence/component_timings.hpp"
#include "evidence/measurement.hpp"
#include "model/plan/scenario.hpp"

namespace zeroplan::evidence {

// One kind of number that one kind of line prints.
struct SeriesInfo {
  Metric metric;
  std::string_view from;          // "DeepSpeed's timers": for the notes
  int preference = 1;             // of the series of a metric the one with the lowest is used
  double half_digit = 0.0;        // half a unit of the last printed digit, in the metric's unit
  bool whole_run = false;         // one number for a run: nothing is left out as warm-up
  std::string_view who = "rank";  // what Sample::rank counts: "rank", "GPU"
};

struct Sample {
  double value = 0.0;       // in the metric's unit
  std::optional<int> rank;  // that printed it, or the GPU's index
  int line = 0;
};

struct Series {
  SeriesInfo info;
  std::vector<Sample> samples;  // in the order of the file
};

// Where a line stands.
struct LogPlace {
  std::optional<int> rank;  // of the process that wrote it, as its label or itself says
  int line = 0;             // of the file, from 1
};

// Optimizer steps.
struct RunProgress {
  std::int64_t done = 0;
  std::optional<std::int64_t> total;
};

class RunFindings {
 public:
  explicit RunFindings(std::string file) : file_(std::move(file)) {}

  // Values that the metric cannot have (none, negative, not finite) are no samples.
  void sample(const SeriesInfo& info, double value, const LogPlace& place);

  // A fact of the scenario, as text of its flag ("16", "bf16") or as a document. The first
  // statement of a key stays; another value is noted. A value that the key cannot have is a bad
  // line.
  void state(ScenarioKey key, std::string_view text, const LogPlace& place);
  void state_value(ScenarioKey key, Json value, const LogPlace& place);

  // A line that is of a known format and cannot be read.
  void bad(const LogPlace& place, Phrase expected, std::string_view got, Phrase hint = "");
  // Said once, however often it is noted.
  void note(std::string text);

  const std::string& file() const { return file_; }
  const std::vector<Series>& series() const { return series_; }
  const Scenario& scenario() const { return scenario_; }
  const std::vector<std::string>& notes() const { return notes_; }
  std::vector<Diagnostic>& bad_lines() { return bad_; }
  const std::vector<Diagnostic>& bad_lines() const { return bad_; }

  // The run has come so far. A line that names a total stands before one without, then the larger.
  void advance(RunProgress to);
  void saved(std::string_view checkpoint);

  // Adds what another file of the same run says.
  void merge(const RunFindings& other);

  // Parts of a cluster, which a scenario names as a whole.
  std::optional<std::int64_t> gpus;           // of the whole job
  std::optional<std::int64_t> gpus_per_node;  //
  std::optional<std::string> gpu_name;        // as the driver calls it
  std::optional<std::int64_t> global_batch;   // samples of a step over all GPUs

  std::optional<RunProgress> progress;
  std::int64_t checkpoints = 0;  // saved, as the log says
  std::string last_checkpoint;

  std::optional<bool> fits;  // a run that ran out of memory does not
  ComponentTimings parts;

 private:
  void keep(ScenarioKey key, Json value, const LogPlace& place);

  std::string file_;
  std::vector<Series> series_;
  Scenario scenario_;
  std::vector<std::string> notes_;
  std::vector<Diagnostic> bad_;
};

}  // namespace zeroplan::evidence
