// The fit/1 document of docs/contract.md section 5: what `fit --json` prints.
#pragma once

#include <vector>

#include "base/json.hpp"
#include "model/predict/checkpoint_files.hpp"
#include "tuner/fit.hpp"
#include "tuner/remedies.hpp"

namespace zeroplan::tuner {

// `scenario`: the question.
Json to_json(const FitAnswer& answer, const Scenario& scenario);

// An array of {change, strategy, ds_config, result}.
Json to_json(const std::vector<Remedy>& remedies);
// The document of `simulate`: with what would make the plan fit, where it does not.
Json simulated_document(const Plan& plan,
                        StepResult result,
                        const CheckpointOptions& checkpoint,
                        Remedies remedies);

}  // namespace zeroplan::tuner
