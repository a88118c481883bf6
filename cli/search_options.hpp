// What tune, report and plot read from the command line about a search, and how they show it.
#pragma once

#include "cli/arguments.hpp"
#include "cli/language/translation.hpp"
#include "cli/progress_bar.hpp"
#include "tuner/tune.hpp"

namespace zeroplan::cli {

// Throws InputError.
tuner::TuneOptions tune_options_of(const Arguments& arguments,
                                   const Scenario& scenario,
                                   const tuner::SearchCounts& counts);

void show_progress(const tuner::SearchProgress& search,
                   Progress& progress,
                   const Translation& words);

// The exit code of a search that found nothing: whether something fits is known only where all was
// looked at or left out by bounds; where it is not, `log` is told why.
int nothing_found(bool all_known, const Streams& streams, const Translation& words);

}  // namespace zeroplan::cli
