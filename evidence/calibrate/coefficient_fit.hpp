// The table's coefficients fitted to observations of one kind, times or memory.
//
//   minimise  sum_i rho((log t_i(theta) - log m_i) / s_i) + sum_k ((log theta_k - log prior_k) /
//   d_k)^2
//
// m_i what was measured, t_i what `simulate` says, s_i its spread, prior_k and d_k value and
// relative sd of the coefficient table, within the table's bounds; rho Huber's loss. A row of the
// table is one coefficient: GPUs that share a row share its fit. Rows of one origin share errors:
// with n of them each has the spread s sqrt(1 + (n - 1) r) (Kish 1965, design effect), where there
// are several origins.
//
// Before the fit the data are asked what they can say: a coefficient whose variance they would not
// make smaller by a tenth stays at its prior. After a first fit all s_i are scaled to the residuals
// it leaves, and it is done again. Slopes come from `quick`, values from `exact`; what a left-out
// origin is predicted with comes from the linearised problem without its rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "evidence/calibrate/observation.hpp"
#include "evidence/calibrate/relative_errors.hpp"
#include "model/cost/coefficients.hpp"

namespace zeroplan::evidence {

struct FittedValue {
  Coefficient id;
  std::string gpu;  // prefix of the GPU's row; empty: the general row
  double prior = 0.0;
  double prior_relative_sd = 0.0;
  double value = 0.0;
  double relative_sd =
      0.0;                  // standard error over the value, the residuals' size taken into account
  double determined = 0.0;  // 1 - posterior variance / prior variance
  bool at_bound = false;
  std::size_t rows = 0;  // that depend on it
};

// What the data did not determine: the value stays.
struct UndeterminedValue {
  Coefficient id;
  std::string gpu;
  double determined = 0.0;
  std::size_t rows = 0;
};

// Two coefficients that the data tell apart badly.
struct Entanglement {
  std::size_t first = 0, second = 0;  // into `fitted`
  double correlation = 0.0;
};

struct FittedRow {
  std::string id, file, source, origin, what, gpu;
  double measured = 0.0, before = 0.0, after = 0.0;  // seconds or bytes
  double left_out = 0.0;                             // 0 where nothing could be left out
  double weight = 1.0;                               // less than 1: an outlier
};

// A deviation of the model itself (step_time_model_sd, ...): the table's, scaled to the robust
// spread of left-out errors over what it made expected, over the rows in which it is the largest.
// reserved_gap_share is one with a value: the mean of the sources' medians, with the spread between
// and within them.
struct FittedDeviation {
  Coefficient id;
  double value = 0.0;
  double relative_sd = 0.0;  // of reserved_gap_share
  std::size_t rows = 0;
};

struct CoefficientFit {
  std::vector<FittedValue> fitted;
  std::vector<UndeterminedValue> undetermined;
  std::vector<Entanglement> entangled;
  std::vector<OriginErrors> errors;  // all first; empty without rows
  std::vector<FittedRow> rows;
  std::vector<FittedDeviation> deviations;  // those with rows enough
  std::size_t rank = 0;
  double residual_sd = 0.0;  // 1: residuals are as large as expected beforehand
  double condition = 0.0;    // largest over least singular value of the fitted
  int iterations = 0;
  bool converged = true;
};

// `rows`: of one kind; none give an empty fit. `jobs`: threads.
CoefficientFit fit_coefficients(const std::vector<Observation>& rows, std::int64_t jobs);

}  // namespace zeroplan::evidence
