// How many parameter elements are on the GPU at a moment of a micro-step, and what a pass gathers.
#pragma once

#include <cstdint>

#include "base/units.hpp"

namespace zeroplan {

struct LiveElements {
  Elements parameters;  // gathered, in flight and persistent: the sum of their numel
  // What is allocated for them: padding, flat buckets, secondary partitions included.
  Elements buffers;
};

struct GatherTotals {
  Elements gathered;             // numel of the parameters handed to gathers
  Elements collective_elements;  // full outputs of the collectives, padding included
  Elements copied;               // copied out of flat buffers
  std::int64_t collectives = 0;
  std::int64_t multi_parameter = 0;  // of these, with several parameters in one buffer
};

}  // namespace zeroplan
