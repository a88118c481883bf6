// The answer of `zeroplan tune`: the best configuration of a space, proven, and why not the others.
//
// In: a scenario, what was said about the space, limits, an objective. Out: the best point as a
// plan with its simulation; what matters most in it; why the rest lost; where nothing fits, the
// nearest that does. Checked by tests/unit/tuner/tune_test.cpp and
// tests/property/search_property.cpp.
#pragma once

#include <cstdint>
#include <optional>

#include "model/plan/scenario.hpp"
#include "tuner/tune_answer.hpp"

namespace zeroplan::tuner {

// Searches end by a count of simulations, the same on every machine; by the clock only where a
// limit of time was said.
struct SearchCounts {
  std::int64_t patience;  // simulations without a better point
  std::int64_t most;      // in all, of one search
};
inline constexpr SearchCounts kTuneCounts{200, 1'000};
inline constexpr SearchCounts kReportCounts{64, 200};  // of the first search

// What a search begins from. Who names a gap wants it proven: patience does not end the search
// then.
TuneOptions usual_tune_options(const SearchCounts& counts, std::optional<double> gap);

// Throws InputError as resolve() and read_request() do.
TuneAnswer tune(const Scenario& scenario, const TuneOptions& options);

}  // namespace zeroplan::tuner
