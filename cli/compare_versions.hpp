// --compare-versions of `fit` and `simulate`: the same run under several sets of releases.
#pragma once

#include "cli/arguments.hpp"
#include "cli/progress_bar.hpp"
#include "model/predict/predict.hpp"

namespace zeroplan::cli {

// Of the strategy that fit() recommends under the last of the sets, or of what came nearest there.
// Returns the exit code: 3 where nothing fits under the last set.
int compare_fit(const Arguments& arguments,
                const Scenario& scenario,
                const PredictOptions& options,
                Streams streams,
                Progress& progress);

// Of the configuration that was said. Returns 3 with --require-fit where the last set lacks room.
int compare_simulate(const Arguments& arguments, const PredictOptions& options, Streams streams);

}  // namespace zeroplan::cli
