// Coefficients of one machine from measurements of that machine: the values under which the model's
// own formula gives what was measured.
//
// Minimised is  sum rho(log(t / m) / s) + sum ((theta / prior - 1) / d)^2  by Levenberg-Marquardt
// with bounds: t the formula, m the measurement, s 5 % (assumed: what a formula with these few
// terms misses of single kernels), rho Huber's from 1.345 s on, d three times the table's spread,
// because a measurement of the very GPU says more than the table of all; bounds are the table's.
// evidence/calibrate does the same for whole training runs, and is not seen from here.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/cost/coefficients.hpp"

namespace zeroplan::runtime {

struct FitRow {
  std::function<double(const Coefficients&)> seconds;  // by the model
  double measured = 0.0;                               // seconds, > 0
};

struct FittedCoefficient {
  Coefficient id;
  double value = 0.0;
  double relative_sd = 0.0;
  bool informed = false;  // the rows lowered its variance by a tenth or more
};

struct CoefficientFit {
  std::vector<FittedCoefficient> found;  // as `free`
  Coefficients coefficients;             // the prior's, with those that are informed
  double median_error = 0.0;             // |t / m - 1| over the rows
  double largest_error = 0.0;
};

// Precondition: rows, and every free coefficient has a value other than 0 in `prior`.
CoefficientFit fit_coefficients(const Coefficients& prior,
                                std::span<const Coefficient> free,
                                const std::vector<FitRow>& rows);

}  // namespace zeroplan::runtime
