// The 90 % interval of a number that has one of several distributions.
//
// Each is normal with the ends of its own 90 % interval, cut off above at what is possible at all;
// the interval runs from the 5 % to the 95 % quantile of their mixture. One alone that is not cut
// off gives its own interval back.
#pragma once

#include <limits>
#include <utility>
#include <vector>

namespace zeroplan::evidence {

struct MixturePart {
  double low = 0.0, high = 0.0;  // its 90 % interval; equal: it is certain
  double weight = 0.0;           // of any scale
  double most = std::numeric_limits<double>::infinity();
};

// Precondition: a part with a positive weight whose `low` is below its `most`.
std::pair<double, double> mixture_interval(const std::vector<MixturePart>& parts);

}  // namespace zeroplan::evidence
