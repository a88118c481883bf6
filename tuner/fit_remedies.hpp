// What to change where no strategy fits, each change planned and simulated again.
#pragma once

#include <vector>

#include "tuner/fit_answer.hpp"
#include "tuner/fit_question.hpp"

namespace zeroplan {

// Cheapest first: what costs only speed, then what changes the training, then what costs money; at
// most three. `example`: any strategy of the question, for its resolved workload.
std::vector<Remedy> remedies(const Question& question,
                             const StrategyResult& example,
                             const PredictOptions& options);

}  // namespace zeroplan
