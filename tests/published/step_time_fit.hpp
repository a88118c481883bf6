// Fits a few coefficients of the step time to measured speeds: logarithms of tokens per second,
// Huber's loss, and a prior on every coefficient, its table value with its table spread. No
// constant belongs to one row.
//
//   minimise  sum_i huber(log p_i(theta) - log m_i) / s^2 + sum_k (log theta_k - log prior_k)^2 /
//   d_k^2
//
// by the solver of evidence/calibrate with differences; theta stays within the table's bounds.
// Units: none, all ratios. `calibrate` fits what the data determine; this fits a list, for tests
// that ask how a form does on rows it has not seen.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/predict/step_time.hpp"

namespace zeroplan {

// A run whose speed was measured, with all that its prediction needs.
struct MeasuredStep {
  std::string id;
  std::string group;  // left out together: the model
  Plan plan;
  ModelGraph graph;
  StepTraffic traffic;
  double tokens_per_second_per_gpu = 0.0;
};

MeasuredStep measured_step(const std::string& id,
                           const std::string& group,
                           const Json& scenario,
                           double tokens_per_second_per_gpu);

// A coefficient to fit, for the GPUs whose key begins so ("": for all).
struct FittedCoefficient {
  Coefficient id;
  std::string_view gpu_key_prefix;
};

struct StepTimeFit {
  std::vector<double> values;  // of the coefficients, in their order
};

// Predicted over measured speed minus one, with the table's coefficients under those of `fit`.
double speed_error(const MeasuredStep& step,
                   const std::vector<FittedCoefficient>& coefficients,
                   const StepTimeFit& fit);

// Rows whose group is `left_out` take no part.
StepTimeFit fit_step_times(const std::vector<MeasuredStep>& steps,
                           const std::vector<FittedCoefficient>& coefficients,
                           std::string_view left_out = "");

// The table's own values.
StepTimeFit table_values(const std::vector<MeasuredStep>& steps,
                         const std::vector<FittedCoefficient>& coefficients);

}  // namespace zeroplan
