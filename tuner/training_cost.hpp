// Hours and money of a whole training on a cluster, from a prediction of its step.
// Checked by tests/unit/tuner/which_gpu_test.cpp.
#pragma once

#include <optional>
#include <string>

#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"
#include "tuner/price_list.hpp"

namespace zeroplan::tuner {

struct CostQuestion {
  PriceList prices;
  std::optional<double> price_per_gpu_hour;  // instead of the list's
  std::optional<double> tokens;              // of the whole training; a dataset says it else
};

struct TrainingCost {
  double tokens = 0.0;   // what hours and cost are of; 0: the dataset
  bool assumed = false;  // nobody said how many: 10^9
  double hours = 0.0;
  std::optional<double> price_per_hour;  // of the cluster; absent where no price is known
  std::optional<double> cost;
};

// `written`: the cluster as the user wrote it, which a price list may name; empty for others.
TrainingCost training_cost(const CostQuestion& question,
                           const std::string& written,
                           const Plan& plan,
                           const StepResult& result);

// An hour of the cluster.
std::optional<double> hourly_price(const CostQuestion& question,
                                   const std::string& written,
                                   const Cluster& cluster);

}  // namespace zeroplan::tuner
