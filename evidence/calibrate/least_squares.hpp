// Bounded, robust, nonlinear least squares with priors: what `calibrate` fits with, and nothing of
// zeroplan in it.
//
//   minimise  sum_i rho(r_i(x)) + sum_k ((x_k - prior_k) / prior_sd_k)^2     low <= x <= high
//
// Residuals come over their own standard deviation, so that 1 is the size expected of them; then a
// prior and the data are weighed rightly. rho: squares, or one that lets outliers count less.
//
// Levenberg and Marquardt's method with Marquardt's scaling and Nielsen's rule for the damping
// (Madsen, Nielsen, Tingleff 2004, "Methods for non-linear least squares problems"); variables that
// press against a bound rest, the step of the others is projected; robust losses by reweighting
// (Holland and Welsch 1977). Checked by tests/published/nist_strd_test.cpp against certified
// values, tests/evidence/least_squares_test.cpp for bounds, priors, outliers and rank.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace zeroplan::evidence {

struct FitParameter {
  std::string name;
  double start = 0.0;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  double prior = 0.0;
  double prior_sd = std::numeric_limits<double>::infinity();  // infinite: no prior
};

// rho(r) with s the scale: r^2; r^2 up to s and 2 s |r| - s^2 beyond (Huber); 2 s^2 (sqrt(1 +
// (r/s)^2) - 1) (soft l1).
enum class Loss { squares, huber, soft_l1 };

struct LeastSquaresProblem {
  std::vector<FitParameter> parameters;
  std::size_t residuals = 0;
  // Residuals at x. NaN or infinity: x is no place to be, and the step there is refused.
  std::function<void(std::span<const double> x, std::span<double> r)> evaluate;
  // d r_i / d x_k at x, row by row, where r is what evaluate() gave there. Empty: central
  // differences, two evaluations a parameter.
  std::function<void(
      std::span<const double> x, std::span<const double> r, std::span<double> jacobian)>
      jacobian;
};

struct LeastSquaresOptions {
  Loss loss = Loss::squares;
  double loss_scale = 1.345;  // Huber's: 95 % as efficient as squares on normal noise
  int max_iterations = 500;
  double tolerance = 1e-12;  // relative, of cost and of the largest step
  // The residuals' size is not known beforehand: standard errors take it from what is left. A
  // prior then has no scale to be weighed on, so there must be none.
  bool estimates_noise = false;
};

struct LeastSquaresFit {
  std::vector<double> x;
  std::vector<double> residuals;        // at x, as evaluate() gives them
  std::vector<double> weights;          // of the residuals: 1, and less for outliers
  std::vector<double> standard_errors;  // infinite where neither data nor prior say anything
  std::vector<double> correlations;     // row by row
  // What the data add to the prior: 1 - posterior variance / prior variance, 0 to 1. Without a
  // prior 1 where the data determine the parameter, 0 where they do not.
  std::vector<double> determined;
  std::vector<bool> at_bound;
  std::vector<double> singular_values;  // of the data's Jacobian, columns over the prior's sd (or
                                        // their own length), largest first
  std::size_t rank = 0;                 // of them, not zero within rounding
  double cost = 0.0;                    // what is minimised
  double residual_sd = 0.0;             // sqrt(sum w r^2 / (residuals - rank))
  int iterations = 0;
  bool converged = false;
};

// Preconditions: low <= start <= high; evaluate() is finite at the start.
LeastSquaresFit least_squares(const LeastSquaresProblem& problem,
                              const LeastSquaresOptions& options = {});

// Errors, correlations and rank at `x` without moving: what the data could say of each parameter.
LeastSquaresFit judge_at(const LeastSquaresProblem& problem,
                         std::span<const double> x,
                         const LeastSquaresOptions& options = {});

}  // namespace zeroplan::evidence
