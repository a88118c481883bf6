// The accuracy tables, by strategy and by source in docs/validate.md and in short in README.md, are
// what the published measurements give today, and no error of them is larger than its recorded
// bound (accuracy_bounds.json).
//
// The measurements are those of data/groundtruth. UPDATE_GOLDEN=1 writes the tables and lowers
// bounds; a bound is raised by hand, except where the number of rows has changed.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "evidence/validate.hpp"
#include "tests/catch.hpp"
#include "tests/identical/document_table.hpp"
#include "tests/identical/published.hpp"
#include "tests/support/data.hpp"

namespace zeroplan::identical {
namespace {

namespace fs = std::filesystem;
using testing::check_table;
using testing::percent;

const std::string kReadme = ZEROPLAN_SOURCE_DIR "/README.md";
const std::string kDetails = ZEROPLAN_SOURCE_DIR "/docs/validate.md";
const std::string kBounds = ZEROPLAN_SOURCE_DIR "/tests/identical/accuracy_bounds.json";

// Engine timers, experimental branches and other engines: not scored with the others.
bool is_side_file(const std::string& stem) {
  return stem == "autotuning_timer" || stem == "zenflow_async" || stem == "llmq_native" ||
         stem == "internevo" || stem.starts_with("megatron_");
}

// The measurements of the tables, as "file/id".
std::set<std::string> scored_measurements() {
  std::set<std::string> ids;
  for (const evidence::MeasurementFile& file : published_files()) {
    const bool in_folder =
        fs::exists(testing::data_path("groundtruth") + "/" + file.file + ".jsonl");
    if (!in_folder || is_side_file(file.file)) continue;
    for (const evidence::Measurement& measurement : file.measurements) {
      const bool counts = measurement.tier == "A" || measurement.tier == "B";
      if (counts) ids.insert(file.file + "/" + measurement.id);
    }
  }
  return ids;
}

// What `validate` says of these.
evidence::ValidationReport scored_report() {
  const std::set<std::string> ids = scored_measurements();
  evidence::ValidationReport report;
  for (const evidence::ValidatedRow& row : published_report().rows) {
    if (ids.count(row.file + "/" + row.id) != 0) report.rows.push_back(row);
  }
  for (const evidence::SkippedRow& row : published_report().skipped) {
    if (ids.count(row.file + "/" + row.id) != 0) report.skipped.push_back(row);
  }
  return report;
}

struct Group {
  std::vector<evidence::ValidatedRow> memory;
  std::vector<evidence::ValidatedRow> time;
};
using Groups = std::map<std::string, Group>;

// What stands in place of a key that a source leaves open.
enum class Open { defaults, likely };

std::string table_rows(const Groups& groups, Open open) {
  std::string text;
  const auto cells = [open](const std::vector<evidence::ValidatedRow>& rows) {
    if (rows.empty()) return std::string(" | | |");
    const evidence::ErrorSummary errors = summarize(rows);
    const bool likely = open == Open::likely;
    return " " + std::to_string(errors.rows) + " | " +
           percent(likely ? errors.likely_median_abs_error : errors.median_abs_error) + " | " +
           percent(likely ? errors.likely_p95_abs_error : errors.p95_abs_error) + " |";
  };
  for (const auto& [name, group] : groups) {
    text += "| " + name + " |" + cells(group.memory) + cells(group.time) + "\n";
  }
  return text;
}

std::string table(const std::string& title, const Groups& groups, Open open) {
  return "| " + title +
         " | memory rows | median | 95 % | time rows | median | 95 % |\n"
         "|---|---|---|---|---|---|---|\n" +
         table_rows(groups, open);
}

struct Accuracy {
  Groups all;
  Groups by_source;
  Groups by_strategy;
  evidence::VerdictSummary verdicts;
  std::size_t skipped = 0;
};

Accuracy accuracy(const evidence::ValidationReport& report) {
  Accuracy result;
  for (const evidence::ValidatedRow& row : evidence::scored_rows(report.rows)) {
    if (!row.error) continue;
    const bool time = evidence::is_time(row.metric);
    if (!time && !evidence::is_peak(row.metric)) continue;
    for (Group* group :
         {&result.all["all"], &result.by_source[row.file], &result.by_strategy[row.strategy]}) {
      (time ? group->time : group->memory).push_back(row);
    }
  }
  result.verdicts = evidence::summarize_verdicts(report.rows, 0.95);
  result.skipped = report.skipped.size();
  return result;
}

// README.md: all of them, and what verdicts and intervals are worth.
std::string overview(const Accuracy& accuracy) {
  const evidence::VerdictSummary& verdicts = accuracy.verdicts;
  const evidence::ErrorSummary memory = summarize(accuracy.all.at("all").memory);
  const evidence::ErrorSummary time = summarize(accuracy.all.at("all").time);
  const auto likely = [](const evidence::ErrorSummary& errors) {
    return percent(errors.likely_median_abs_error) + " in the median and " +
           percent(errors.likely_p95_abs_error) + " at 95 %";
  };
  const auto inside = [](const evidence::ErrorSummary& errors) {
    return percent(errors.interval_coverage) + " (median half-width " +
           percent(errors.median_half_width) + ")";
  };
  return "- memory, " + std::to_string(memory.rows) + " published peaks: " + likely(memory) +
         "\n- time, " + std::to_string(time.rows) + " published runs: " + likely(time) +
         "\n- verdicts: " + std::to_string(verdicts.right) + " of " +
         std::to_string(verdicts.rows) + " right at probability 0.5; " +
         std::to_string(verdicts.wrong_fits) + " of " + std::to_string(verdicts.failed) +
         " runs that failed were said to fit at 0.95\n- 90 % intervals: " + inside(memory) +
         " of the memory rows inside, " + inside(time) + " of the time rows\n";
}

// docs/validate.md: the sources, and what lies outside the scored defaults.
std::string details(const Accuracy& accuracy) {
  const Group& all = accuracy.all.at("all");
  const auto likely = [](const std::vector<evidence::ValidatedRow>& rows) {
    const evidence::ErrorSummary errors = summarize(rows);
    return percent(errors.likely_median_abs_error) + " median, " +
           percent(errors.likely_p95_abs_error) + " at 95 %";
  };
  return table("source", accuracy.by_source, Open::defaults) +
         table_rows(accuracy.all, Open::defaults) +
         "\n- with likely values in place of the defaults of unspecified keys: memory " +
         likely(all.memory) + "; time " + likely(all.time) + "\n- " +
         std::to_string(accuracy.skipped) +
         " measurements skipped: engines and model code that are not modelled\n";
}

// --- bounds
// --------------------------------------------------------------------------------------------

struct Bound {
  std::size_t rows = 0;
  double median = 0.0;
  double p95 = 0.0;
};
using Bounds = std::map<std::string, Bound>;

Bounds measured_bounds(const Accuracy& accuracy) {
  Bounds bounds;
  const auto add = [&](const Groups& groups) {
    for (const auto& item : groups) {
      const std::string& name = item.first;  // clang 14: no bindings in lambdas
      const Group& group = item.second;
      const auto put = [&](const char* what, const std::vector<evidence::ValidatedRow>& rows) {
        if (rows.empty()) return;
        const evidence::ErrorSummary errors = summarize(rows);
        bounds[name + ", " + what] = {errors.rows, errors.median_abs_error, errors.p95_abs_error};
      };
      put("memory", group.memory);
      put("time", group.time);
    }
  };
  add(accuracy.all);
  add(accuracy.by_source);
  add(accuracy.by_strategy);
  return bounds;
}

Bounds read_bounds() {
  Bounds bounds;
  if (!fs::exists(kBounds)) return bounds;
  const JsonDocument document = read_json_file(kBounds);
  for (const auto& [name, value] : document.root.members()) {
    bounds[name] = {static_cast<std::size_t>(value.find("rows")->as_integer()),
                    value.find("median")->as_number(),
                    value.find("p95")->as_number()};
  }
  return bounds;
}

// An error and a twentieth of it, up to a whole tenth of a percent: what rounding and compilers
// move.
double with_slack(double error) { return std::ceil(1050.0 * error + 1e-9) / 1000.0; }

void update_bounds(const Bounds& measured) {
  const Bounds old = read_bounds();
  Json document = Json::object();
  for (const auto& [name, bound] : measured) {
    double median = with_slack(bound.median);
    double p95 = with_slack(bound.p95);
    const auto known = old.find(name);
    if (known != old.end() && known->second.rows == bound.rows) {
      median = std::min(median, known->second.median);
      p95 = std::min(p95, known->second.p95);
    }
    document[name] = Json::object({{"rows", bound.rows}, {"median", median}, {"p95", p95}});
  }
  std::ofstream(kBounds, std::ios::binary) << document.dump(2) << "\n";
}

}  // namespace

TEST_CASE("README.md and docs/validate.md have today's accuracy, and no error is past its bound") {
  if (kUnderThreadSanitizer) {
    WARN("skipped: the accuracy tables take half an hour under ThreadSanitizer");
    return;
  }
  const Accuracy today = accuracy(scored_report());
  const Bounds measured = measured_bounds(today);
  if (std::getenv("UPDATE_GOLDEN") != nullptr) update_bounds(measured);

  const Bounds bounds = read_bounds();
  for (const auto& [name, bound] : measured) {
    INFO(name << ": raise its bound in tests/identical/accuracy_bounds.json only with a reason");
    const auto recorded = bounds.find(name);
    REQUIRE(recorded != bounds.end());
    CHECK(recorded->second.rows == bound.rows);
    CHECK(bound.median <= recorded->second.median);
    CHECK(bound.p95 <= recorded->second.p95);
  }
  CHECK(bounds.size() == measured.size());

  check_table(kReadme, "accuracy", overview(today));
  check_table(
      kDetails,
      "strategies",
      table("strategy", today.by_strategy, Open::likely) + table_rows(today.all, Open::likely));
  check_table(kDetails, "accuracy", details(today));
  const Group& all = today.all.at("all");
  testing::check_accuracy("memory", evidence::errors_by_kind(all.memory, evidence::is_peak));
  testing::check_accuracy("time", evidence::errors_by_kind(all.time, evidence::is_time));
}

}  // namespace zeroplan::identical
