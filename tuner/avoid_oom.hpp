// The smallest change that makes a run fit its GPUs.
//
// Changes are tried in a stated order: first what costs no or little speed and trains the same
// (buckets, full checkpointing, 16-bit weights, more partitioning), then what costs speed (the same
// batch in smaller parts, the optimizer on the host, both on the host), then what changes the
// training (shorter sequences). Each is a simulation on the GPU; the first that fits is the
// smallest. Where no single change fits, they are added up in the same order until the run fits.
// Checked by tests/unit/tuner/avoid_oom_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "tuner/variations.hpp"

namespace zeroplan {

struct TriedChange {
  Variation variation;
  VariedResult outcome;
  bool fits() const { return outcome.result && outcome.result->fits; }
};

struct AvoidOom {
  std::vector<TriedChange> tried;     // single changes in the order of preference, then sums
  std::vector<std::size_t> that_fit;  // indices of `tried`; the first is the smallest change
};

// The single changes that make sense for the plan, in the order of preference. For host memory:
// loading on one rank (stage 3), then offloading less or to NVMe.
std::vector<Variation> changes_against_oom(const Plan& base, Resource resource);

AvoidOom avoid_oom(const Variations& variations,
                   Resource resource,
                   const PredictOptions& options = {});

}  // namespace zeroplan
