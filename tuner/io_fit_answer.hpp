// The fit/1 document of docs/contract.md section 5: what `fit --json` prints.
#pragma once

#include <vector>

#include "model/json.hpp"
#include "tuner/fit.hpp"

namespace zeroplan {

// `scenario`: the question.
Json to_json(const FitAnswer& answer, const Scenario& scenario);

// An array of {change, strategy, ds_config, result}.
Json to_json(const std::vector<Remedy>& remedies);

}  // namespace zeroplan
