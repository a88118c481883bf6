// What a run's lines say, summed up as one measurement.
//
// Peaks: the largest of all lines and ranks, since every line says "at least". What is held between
// steps: the median of the worst rank. Times and rates: of the best source the file has
// (SeriesInfo:: preference), rank 0 or the lowest rank that printed; the first steps are left out
// as warm-up (one of two to nine, a fifth of ten and more, ten at most), and the median of the
// others is taken. `notes` says count, quartiles and source, and what the scenario lacks;
// `uncertainty` is the relative standard deviation: of one step (from the quartiles) for times, of
// rounding for memory.
#pragma once

#include <optional>
#include <string>

#include "evidence/importers/run_findings.hpp"
#include "evidence/measurement.hpp"

namespace zeroplan::evidence {

// Nothing where no metric and no part was measured.
std::optional<Measurement> measurement_of(const RunFindings& findings,
                                          const std::string& id,
                                          const std::string& source);

// How many of the first of `steps` are warm-up.
std::size_t warm_up_steps(std::size_t steps);

}  // namespace zeroplan::evidence
