#include "cli/report/validation_plot.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/diagnostic.hpp"
#include "cli/arguments.hpp"
#include "cli/report/draw.hpp"
#include "cli/report/report_page.hpp"
#include "cli/validate_text.hpp"
#include "cli/write_file.hpp"

namespace zeroplan::cli {
namespace {

constexpr int kWidth = 1000;  // pixels of the two plots side by side

// Of one row, in bytes or seconds.
struct Values {
  double measured = 0.0;
  double predicted = 0.0;
  double low = 0.0;
  double high = 0.0;
};

// A step of t s at r tokens/s per GPU has t r tokens a GPU, and takes t r / r' s at a rate r'; the
// same with samples.
Values values_of(const evidence::ValidatedRow& row) {
  if (evidence::is_memory(row.metric) || row.metric == evidence::Metric::step_seconds) {
    return {row.measured, row.predicted, row.low, row.high};
  }
  const double of_a_step = row.step_seconds * row.predicted;
  return {of_a_step / row.measured, row.step_seconds, of_a_step / row.high, of_a_step / row.low};
}

// Logarithmic axes take what is positive.
bool can_be_shown(const Values& values) {
  const auto shown = [](double value) { return std::isfinite(value) && value > 0.0; };
  return shown(values.measured) && shown(values.predicted) && shown(values.low) &&
         shown(values.high);
}

Json point_json(const evidence::ValidatedRow& row,
                const Values& values,
                const std::string& source) {
  return Json::object({{"kind", evidence::is_memory(row.metric) ? "memory" : "time"},
                       {"id", printable(row.id)},
                       {"source", source},
                       {"strategy", printable(row.strategy)},
                       {"metric", name(row.metric)},
                       {"measured", values.measured},
                       {"predicted", values.predicted},
                       {"low", values.low},
                       {"high", values.high},
                       {"error", *row.error}});
}

Json errors_json(const evidence::ValidationReport& report) {
  Json list = Json::array();
  for (const evidence::MetricSummary& summary : report.summary) {
    const evidence::ErrorSummary& errors = summary.errors;
    if (summary.source != "*" || errors.rows == 0) continue;
    list.push_back(Json::object({{"metric", name(summary.metric)},
                                 {"rows", errors.rows},
                                 {"median_abs_error", errors.median_abs_error},
                                 {"p95_abs_error", errors.p95_abs_error},
                                 {"interval_coverage", errors.interval_coverage}}));
  }
  return list;
}

Json worst_json(std::vector<evidence::ValidatedRow> rows,
                const Collections& collections,
                std::size_t count) {
  std::stable_sort(rows.begin(),
                   rows.end(),
                   [](const evidence::ValidatedRow& a, const evidence::ValidatedRow& b) {
                     return std::abs(a.error.value_or(0.0)) > std::abs(b.error.value_or(0.0));
                   });
  Json list = Json::array();
  for (const evidence::ValidatedRow& row : rows) {
    if (!row.error || list.items().size() == count) break;
    list.push_back(Json::object({{"error", *row.error},
                                 {"metric", name(row.metric)},
                                 {"id", printable(row.id)},
                                 {"source", printable(collections.of(row))},
                                 {"strategy", printable(row.strategy)},
                                 {"why", printable(row.why)}}));
  }
  return list;
}

}  // namespace

Json validation_document(const evidence::ValidationReport& report, std::size_t worst) {
  const Collections collections(report.rows);
  const std::vector<evidence::ValidatedRow> scored = evidence::scored_rows(report.rows);
  std::set<std::string> files;
  std::set<std::string> sources;
  Json points = Json::array();
  for (const evidence::ValidatedRow& row : scored) {
    const Values values = values_of(row);
    if (!row.error || !can_be_shown(values)) continue;
    const std::string source = printable(collections.of(row));  // XML has no control characters
    sources.insert(source);
    points.push_back(point_json(row, values, source));
  }
  for (const evidence::ValidatedRow& row : report.rows) files.insert(row.file);
  const auto list = [](const std::set<std::string>& texts) {
    Json json = Json::array();
    for (const std::string& text : texts) json.push_back(text);
    return json;
  };
  return Json::object({{"schema", "zeroplan.validation-plot/1"},
                       {"files", list(files)},
                       {"rows", report.rows.size()},
                       {"scenarios", report.scenarios},
                       {"skipped", report.skipped.size()},
                       {"sources", list(sources)},
                       {"points", std::move(points)},
                       {"errors", errors_json(report)},
                       {"worst", worst_json(scored, collections, worst)}});
}

void require_validation_plot(const std::string& path) {
  const bool svg = path.ends_with(".svg");
  if (!svg && !path.ends_with(".html")) {
    throw InputError(
        {kCommandLine, "--plot", "a name that ends in .svg or .html", in_quotes(path), ""});
  }
  require_vega();
  if (svg) require_drawing(false, "an .html needs only a browser");
  require_writable(path);
}

bool write_validation_plot(const Json& document, const std::string& path) {
  if (document.find("points")->items().empty()) return false;
  if (path.ends_with(".html")) {
    write_file(path, validation_page(document));
  } else {
    PlotRequest request;
    request.plot = "scatter";
    request.width = kWidth;
    write_file(path, draw_svg(plot_script(document, request)));
  }
  return true;
}

}  // namespace zeroplan::cli
