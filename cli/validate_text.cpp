#include "cli/validate_text.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "cli/table.hpp"

namespace zeroplan::cli {
namespace {

std::string file_stem(const std::string& file) {
  const std::size_t slash = file.rfind('/');
  std::string stem = slash == std::string::npos ? file : file.substr(slash + 1);
  if (stem.ends_with(".jsonl")) stem.resize(stem.size() - 6);
  return stem;
}

// "https://github.com/owner/name/issues/1 (table 2)" -> "owner/name".
std::string repository(const std::string& source) {
  std::string word = source.substr(0, source.find(' '));
  constexpr std::string_view kHost = "https://github.com/";
  if (word.starts_with(kHost)) word.erase(0, kHost.size());
  const std::size_t owner = word.find('/');
  if (owner == std::string::npos) return word;
  return word.substr(0, word.find('/', owner + 1));
}

class Text {
 public:
  Text(const evidence::ValidationReport& report, const evidence::ValidateOptions& options)
      : report_(report),
        options_(options),
        scored_(evidence::scored_rows(report.rows)),
        collections_(report.rows) {}

  std::string write(std::size_t worst) const {
    std::string text = fmt::format("{} measured values of {} scenarios; {} measurements skipped\n",
                                   report_.rows.size(),
                                   report_.scenarios,
                                   report_.skipped.size());
    text += errors() + verdicts();
    text +=
        worst_of("memory", worst, evidence::is_memory) + worst_of("time", worst, evidence::is_time);
    text += wrong_verdicts(worst);
    return text + skipped();
  }

 private:
  std::string collection(const evidence::ValidatedRow& row) const { return collections_.of(row); }

  std::string errors() const {
    if (scored_.empty()) return "";
    std::map<evidence::Metric, std::map<std::string, std::vector<evidence::ValidatedRow>>> groups;
    for (const evidence::ValidatedRow& row : scored_) {
      groups[row.metric][""].push_back(row);
      groups[row.metric][collection(row)].push_back(row);
    }
    std::vector<std::vector<std::string>> lines;
    for (const auto& [metric, collections] : groups) {
      for (const auto& [title, rows] : collections) {
        const evidence::ErrorSummary errors = summarize(rows);
        if (errors.rows == 0) continue;
        lines.push_back({title.empty() ? std::string(name(metric)) : "",
                         title.empty() ? "all" : title,
                         std::to_string(errors.rows),
                         percent_text(errors.median_abs_error),
                         percent_text(errors.p95_abs_error),
                         fmt::format("{:+.1f} %", 100.0 * errors.median_error),
                         percent_text(errors.interval_coverage),
                         percent_text(errors.median_half_width)});
      }
    }
    return "\n" + table({{"metric"},
                         {"source"},
                         {"rows", Align::right},
                         {"median error", Align::right},
                         {"95 %", Align::right},
                         {"bias", Align::right},
                         {"in interval", Align::right},
                         {"half-width", Align::right}},
                        lines);
  }

  std::string verdicts() const {
    const evidence::VerdictSummary verdicts =
        evidence::summarize_verdicts(report_.rows, options_.confidence);
    if (verdicts.rows == 0) return "";
    return fmt::format(
        "\nverdicts: {} of {} right at probability 0.5; {} of {} that failed were said to fit at "
        "{:.2f}; {} of {} that ran with 15 % of the memory free were said to fit at {:.2f}\n",
        verdicts.right,
        verdicts.rows,
        verdicts.wrong_fits,
        verdicts.failed,
        options_.confidence,
        verdicts.with_room_said,
        verdicts.with_room,
        options_.confidence);
  }

  static std::string value_text(evidence::Metric metric, double value) {
    if (evidence::is_memory(metric)) return fmt::format("{:.2f} GiB", value / (1 << 30));
    if (metric == evidence::Metric::step_seconds) return seconds_text(Seconds::of(value));
    return fmt::format("{:.4g}", value);
  }

  std::string worst_of(const char* what,
                       std::size_t count,
                       bool (*counts)(evidence::Metric)) const {
    std::vector<evidence::ValidatedRow> rows;
    for (const evidence::ValidatedRow& row : scored_) {
      if (counts(row.metric) && row.error) rows.push_back(row);
    }
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
      return std::abs(*a.error) > std::abs(*b.error);
    });
    rows.resize(std::min(rows.size(), count));
    if (rows.empty()) return "";
    std::vector<std::vector<std::string>> lines;
    for (const evidence::ValidatedRow& row : rows) {
      lines.push_back({fmt::format("{:+.1f} %", 100.0 * *row.error),
                       std::string(name(row.metric)),
                       value_text(row.metric, row.predicted),
                       value_text(row.metric, row.measured),
                       row.id,
                       row.tier,
                       collection(row),
                       row.strategy,
                       row.why});
    }
    return fmt::format("\nWorst {} predictions:\n", what) + table({{"error", Align::right},
                                                                   {"metric"},
                                                                   {"predicted", Align::right},
                                                                   {"measured", Align::right},
                                                                   {"id"},
                                                                   {"tier"},
                                                                   {"source"},
                                                                   {"strategy"},
                                                                   {"why, perhaps"}},
                                                                  lines);
  }

  std::string wrong_verdicts(std::size_t count) const {
    std::vector<std::vector<std::string>> lines;
    for (const evidence::ValidatedRow& row : report_.rows) {
      if (row.metric != evidence::Metric::fits || row.inside_interval) continue;
      if (lines.size() == count) break;
      lines.push_back({row.measured == 1.0 ? "ran" : "failed",
                       fmt::format("{:.3f}", row.probability),
                       row.id,
                       row.tier,
                       collection(row),
                       row.strategy,
                       row.why});
    }
    if (lines.empty()) return "";
    return "\nWrong verdicts:\n" + table({{"measured"},
                                          {"probability", Align::right},
                                          {"id"},
                                          {"tier"},
                                          {"source"},
                                          {"strategy"},
                                          {"why, perhaps"}},
                                         lines);
  }

  std::string skipped() const {
    if (report_.skipped.empty()) return "";
    std::map<std::string, std::size_t> reasons;
    for (const evidence::SkippedRow& row : report_.skipped) ++reasons[row.reason];
    std::vector<std::pair<std::string, std::size_t>> order(reasons.begin(), reasons.end());
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return a.second > b.second;
    });
    std::vector<std::vector<std::string>> lines;
    for (const auto& [reason, count] : order) lines.push_back({std::to_string(count), reason});
    return "\nSkipped:\n" + table({{"rows", Align::right}, {"reason"}}, lines);
  }

  const evidence::ValidationReport& report_;
  const evidence::ValidateOptions& options_;
  const std::vector<evidence::ValidatedRow> scored_;
  const Collections collections_;
};

}  // namespace

Collections::Collections(const std::vector<evidence::ValidatedRow>& rows) {
  std::set<std::string> files;
  for (const evidence::ValidatedRow& row : rows) files.insert(row.file);
  several_files_ = files.size() > 1;
}

std::string Collections::of(const evidence::ValidatedRow& row) const {
  return several_files_ ? file_stem(row.file) : repository(row.source);
}

std::string validate_text(const evidence::ValidationReport& report,
                          const evidence::ValidateOptions& options,
                          std::size_t worst) {
  return Text(report, options).write(worst);
}

}  // namespace zeroplan::cli
