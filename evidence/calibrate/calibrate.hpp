// Coefficients fitted to measurements (`zeroplan calibrate`, docs/calibrate.md): those of times to
// times, those of memory to peaks of memory. Neither depends on the other's, so that both are
// fitted apart in one run (coefficient_fit.hpp) and reported apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "evidence/calibrate/coefficient_fit.hpp"
#include "evidence/calibrate/observation.hpp"
#include "evidence/measurement.hpp"
#include "model/cost/profile.hpp"

namespace zeroplan::evidence {

struct CalibrateOptions {
  std::int64_t jobs = 1;
  std::string tiers;
  std::string name = "calibrated";
  std::string date;  // "2026-11-22"; may be empty
};

struct Calibration {
  CoefficientFit times;
  CoefficientFit memory;
  std::vector<UnusedMeasurement> unused;
  std::vector<std::string> gpus;
  std::vector<SeenRange> range;
  std::size_t sources = 0;  // of both
};

// Throws InputError where no line measures a time or a peak that can be predicted.
Calibration calibrate(const std::vector<MeasurementFile>& files, const CalibrateOptions& options);
Calibration calibrate(const Observations& observations, const CalibrateOptions& options);

// zeroplan.profile/1 for --profile, and zeroplan.calibration/1 for --json.
Json profile_document(const Calibration& calibration, const CalibrateOptions& options);
Json to_json(const Calibration& calibration);

}  // namespace zeroplan::evidence
