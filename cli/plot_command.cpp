// zeroplan plot: one plot of the report as SVG or PNG.
#include <algorithm>
#include <array>
#include <ostream>

#include "base/diagnostic.hpp"
#include "base/enum_names.hpp"
#include "base/phrase_list.hpp"
#include "cli/commands.hpp"
#include "cli/language/translation.hpp"
#include "cli/report/draw.hpp"
#include "cli/report/report_page.hpp"
#include "cli/report/report_request.hpp"
#include "cli/write_file.hpp"

namespace zeroplan::cli {
namespace {

// As plots.js calls them; those behind the first two show a chosen configuration.
constexpr std::array<std::string_view, 6> kPlots = {
    "tradeoff", "stages", "memory", "streams", "knobs-memory", "knobs-time"};
constexpr std::array<std::string_view, 2> kThemes = {"light", "dark"};

template <std::size_t N>
std::string choice(const Arguments& arguments,
                   const std::string& option,
                   const std::array<std::string_view, N>& choices) {
  const std::string said = arguments.text(option).value_or(std::string(choices[0]));
  if (std::find(choices.begin(), choices.end(), said) != choices.end()) return said;
  throw InputError({kCommandLine,
                    "--" + option,
                    phrase("one of {}", phrase_list(choices)),
                    in_quotes(said),
                    did_you_mean(said, choices)});
}

// A picture is drawn of some parts of a report.
ReportParts parts_for(std::string_view plot) {
  const bool knobs = plot.starts_with("knobs-");
  return {.search = plot != "stages",
          .front = plot == "tradeoff",
          .strategies = plot == "tradeoff" || plot == "stages",
          .step = plot == "memory" || plot == "streams",
          .moves = knobs,
          .answers = false};
}

bool has_data(const Json& document, std::string_view plot) {
  if (plot == "tradeoff" || plot == "stages") return true;
  if (plot == "memory") return !document.find("memory_timeline")->is_null();
  if (plot == "streams") return !document.find("stream_timeline")->is_null();
  return !document.find("sensitivity")->items().empty();
}

}  // namespace

int run_plot(const Arguments& arguments, Streams streams) {
  const Translation words(arguments.language);
  PlotRequest request;
  request.plot = choice(arguments, "plot", kPlots);
  request.theme = choice(arguments, "theme", kThemes);
  request.width = static_cast<int>(
      std::clamp<std::int64_t>(arguments.integer("width", 200).value_or(request.width), 200, 8000));
  request.language = arguments.language;
  std::string path;
  bool png = false;
  if (arguments.has("output") || !arguments.json) {
    path = output_file(arguments, "tradeoff.svg");
    png = path.ends_with(".png");
    if (!png && !path.ends_with(".svg")) {
      throw InputError(
          {kCommandLine, "--output", "a name that ends in .svg or .png", in_quotes(path), ""});
    }
    require_vega();
    require_drawing(png, "`zeroplan report` needs only a browser");
  }
  const ReportData data = report_data_of(arguments, streams, parts_for(request.plot));
  const Json document = to_json(data, words);
  if (!path.empty() && has_data(document, request.plot)) {
    const std::string svg = draw_svg(plot_script(document, request));
    if (png) {
      write_png(svg, path);
    } else {
      write_file(path, svg);
    }
    streams.log << words.text(phrase("wrote {}", path)) << "\n";
  } else if (!path.empty()) {
    const bool searched = document.find("search")->find("proven_empty")->as_boolean();
    const char* why = data.chosen ? "nothing to show"
                      : searched  ? "nothing fits"
                                  : "nothing found so far that fits";
    streams.log << words.text(phrase("nothing written to {}: {}", path, why)) << "\n";
  }
  if (arguments.json) {
    const Translation of_documents(arguments.document_language);
    streams.out << to_json(data, of_documents).dump(2) << "\n";
  } else {
    streams.out << words.text(report_text(document, data));
  }
  return exit_code_of(document, streams, words);
}

}  // namespace zeroplan::cli
