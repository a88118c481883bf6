// Whether a node's host memory and drives suffice for a plan.
#pragma once

#include "base/units.hpp"

namespace zeroplan::tuner {

// Of one node.
struct HostState {
  double probability = 1.0;  // that host memory and drives suffice
  Bytes peak;
};

}  // namespace zeroplan::tuner
