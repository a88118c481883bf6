// Pairs of releases with which a run stops before its first optimizer step, whatever its memory:
// what lint finds, what a plan is refused for, and what a search does not choose.
//
// Checked by tests/unit/model/plan/release_pairs_test.cpp.
#pragma once

#include <cstdint>

#include "model/plan/plan.hpp"

namespace zeroplan {

// The Trainer enters an engine's no_sync that refuses it: with more than one micro-step.
bool stops_in_no_sync(const Version& deepspeed,
                      const Version& transformers,
                      std::int64_t gradient_accumulation_steps);

// Whether a plan of these releases has to be without accumulation for that reason.
bool refuses_accumulation(const Workload& workload, const Software& software);

// Accumulation 1 in a search's scenario where nobody said any and its releases refuse more.
// `prepared` has the stage that the search begins with. Throws InputError as resolve() does.
void keep_from_accumulating(Scenario& scenario, const Prepared& prepared, const Origin& searcher);

// The Trainer fills stage3_prefetch_bucket_size "auto" with a fraction, which DeepSpeed refuses: at
// stage 3, where 0.9 x hidden size squared is no whole number.
bool stops_at_fraction(const Version& deepspeed,
                       const Version& transformers,
                       std::int64_t hidden_size);

}  // namespace zeroplan
