// The questions of `zeroplan fit` that name no cluster, several, or a goal other than speed: which
// GPU, the longest sequences, the largest model.
#pragma once

#include <optional>

#include "cli/arguments.hpp"
#include "cli/progress_bar.hpp"
#include "model/predict/predict.hpp"

namespace zeroplan::cli {

// The exit code; nothing where the question is an ordinary one of a model on a cluster.
std::optional<int> answer_which_gpu(const Arguments& arguments,
                                    const PredictOptions& options,
                                    Streams streams,
                                    Progress& progress);

}  // namespace zeroplan::cli
