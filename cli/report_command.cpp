// zeroplan report: the trade-offs of a model on a cluster as one page.
#include <ostream>

#include "cli/commands.hpp"
#include "cli/language/translation.hpp"
#include "cli/report/report_page.hpp"
#include "cli/report/report_request.hpp"
#include "cli/write_file.hpp"

namespace zeroplan::cli {

int run_report(const Arguments& arguments, Streams streams) {
  const Translation words(arguments.language);
  // What is missing is said before the search.
  std::string path;
  if (arguments.has("output") || !arguments.json) {
    path = output_file(arguments, "report.html");
    require_vega();
  }
  const ReportData data = report_data_of(arguments, streams);
  const Json document = to_json(data, words);
  if (!path.empty()) {
    write_file(path, report_page(document, arguments.language));
    streams.log << words.text(phrase("wrote {}", path)) << "\n";
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
