// Coefficients fitted to measurements (`zeroplan calibrate`, docs/profile.md).
//
//   minimise  sum_i rho((log t_i(theta) - log m_i) / s_i) + sum_k ((log theta_k - log prior_k) /
//   d_k)^2
//
// m_i a measured time, t_i what `simulate` says, s_i its spread, prior_k and d_k value and relative
// sd of the coefficient table, within the table's bounds; rho Huber's loss. A row of the table is
// one coefficient: cards that share a row share its fit. Rows of one origin share errors: with n of
// them each has the spread s sqrt(1 + (n - 1) r) (Kish 1965, design effect), where there are
// several origins.
//
// Before the fit the data are asked what they can say: a coefficient whose variance they would not
// make smaller by a tenth stays at its prior. After a first fit
// all s_i are scaled to the residuals it leaves, and it is done again. Slopes come from the closed
// form, values are played; what a left-out origin is predicted with comes from the linearised
// problem without its rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evidence/calibrate/observation.hpp"
#include "model/cost/coefficients.hpp"
#include "model/cost/profile.hpp"
#include "model/json.hpp"

namespace zeroplan {

struct CalibrateOptions {
  std::int64_t jobs = 1;
  std::string tiers;
  std::string name = "calibrated";
  std::string date;  // "2026-11-22"; may be empty
};

struct FittedValue {
  Coefficient id;
  std::string card;  // prefix of the card's row; empty: the general row
  double prior = 0.0;
  double prior_relative_sd = 0.0;
  double value = 0.0;
  double relative_sd =
      0.0;                  // standard error over the value, the residuals' size taken into account
  double determined = 0.0;  // 1 - posterior variance / prior variance
  bool at_bound = false;
  std::size_t rows = 0;  // whose time depends on it
};

// What the data did not determine: the value stays.
struct UndeterminedValue {
  Coefficient id;
  std::string card;
  double determined = 0.0;
  std::size_t rows = 0;
};

// Two coefficients that the data tell apart badly.
struct Entanglement {
  std::size_t first = 0, second = 0;  // into `fitted`
  double correlation = 0.0;
};

struct TimeErrors {
  double median = 0.0, p95 = 0.0;  // of |predicted / measured - 1|
  double bias = 0.0;               // median of predicted / measured - 1
};

struct OriginErrors {
  std::string origin;  // "": all
  std::size_t rows = 0;
  TimeErrors before, after;
  TimeErrors left_out;  // predicted by a fit that has not seen the origin
  bool has_left_out = false;
};

struct FittedRow {
  std::string id, file, source, origin, what, card;
  double measured = 0.0, before = 0.0, after = 0.0;  // seconds
  double left_out = 0.0;                             // 0 where nothing could be left out
  double weight = 1.0;                               // less than 1: an outlier
};

struct Calibration {
  std::vector<FittedValue> fitted;
  std::vector<UndeterminedValue> undetermined;
  std::vector<Entanglement> entangled;
  std::vector<OriginErrors> errors;  // all first
  std::vector<FittedRow> rows;
  std::vector<UnusedMeasurement> unused;
  std::vector<std::string> cards;
  std::vector<SeenRange> range;
  std::size_t rank = 0;
  double residual_sd = 0.0;  // 1: residuals are as large as expected beforehand
  double condition = 0.0;    // largest over least singular value of the fitted
  double model_sd = 0.0;     // robust spread of left-out errors; 0 where there are too few rows
  int iterations = 0;
  bool converged = false;
};

// Throws InputError where no line measures a time that can be predicted.
Calibration calibrate(const std::vector<MeasurementFile>& files, const CalibrateOptions& options);
Calibration calibrate(const Observations& observations, const CalibrateOptions& options);

// zeroplan.profile/1 for --profile, and zeroplan.calibration/1 for --json.
Json profile_document(const Calibration& calibration, const CalibrateOptions& options);
Json to_json(const Calibration& calibration);

}  // namespace zeroplan
