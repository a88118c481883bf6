// What report and plot read from the command line, and what they print besides their file.
#pragma once

#include <string>

#include "base/phrase.hpp"
#include "cli/arguments.hpp"
#include "cli/language/translation.hpp"
#include "cli/report/report_data.hpp"

namespace zeroplan::cli {

// Asks tuner and simulator, with a progress bar. Throws InputError.
ReportData report_data_of(const Arguments& arguments,
                          Streams streams,
                          const ReportParts& parts = {});

// A few lines for standard output: yes or no, the chosen configuration, how it was found.
Phrase report_text(const Json& document, const ReportData& data);

// The file of --output. Throws InputError where it is missing or cannot be
// written: that is said before the search.
std::string output_file(const Arguments& arguments, const std::string& example);

// The exit code of docs/contract.md section 3; `log` is told why there is no answer.
int exit_code_of(const Json& document, const Streams& streams, const Translation& words);

}  // namespace zeroplan::cli
