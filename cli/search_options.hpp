// What tune, report and plot read from the command line about a search, and how they show it.
#pragma once

#include "cli/arguments.hpp"
#include "cli/language/translation.hpp"
#include "cli/progress_bar.hpp"
#include "tuner/tune.hpp"

namespace zeroplan {

// Searches end by a count of simulations, the same on every machine; by the clock only where
// --time-limit says so.
struct SearchCounts {
  std::int64_t patience;  // simulations without a better point
  std::int64_t most;      // in all, of one search
};
inline constexpr SearchCounts kTuneCounts{200, 3'000};
inline constexpr SearchCounts kReportCounts{64, 200};  // of the first search

// Who names a gap wants it proven: patience does not end the search then. Throws InputError.
TuneOptions tune_options_of(const Arguments& arguments,
                            const Scenario& scenario,
                            const SearchCounts& counts);

void show_progress(const SearchProgress& progress, ProgressBar& bar, const Translation& words);

}  // namespace zeroplan
