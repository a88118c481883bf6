// Measurements as a fit takes them: each a time or a peak of memory, and a function that predicts
// it from coefficients.
//
// A scenario counts once with one time metric and once with each peak (GPU: allocated, reserved,
// total; host), against the median of its repeats; a line's collectives count each. Keys that the
// source leaves open have their defaults, and the row a wider spread: where its tier says that
// something is missing, and for memory by what the keys' other values change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evidence/calibrate/observation.hpp"
#include "evidence/measurement.hpp"

namespace zeroplan::evidence {

// `tiers`: letters of those that count, empty for all; `jobs`: threads.
Observations observe(const std::vector<MeasurementFile>& files,
                     const std::string& tiers,
                     std::int64_t jobs);

}  // namespace zeroplan::evidence
