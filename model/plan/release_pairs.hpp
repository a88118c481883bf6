// Pairs of releases with which a run stops before its first optimizer step, whatever its memory:
// what lint finds, and what a plan is refused for or warned of.
//
// Checked by tests/unit/model/plan/release_pairs_test.cpp.
#pragma once

#include <cstdint>

#include "model/software.hpp"

namespace zeroplan {

// The Trainer enters an engine's no_sync that refuses it: with more than one micro-step.
bool stops_in_no_sync(const Version& deepspeed,
                      const Version& transformers,
                      std::int64_t gradient_accumulation_steps);

// The Trainer fills stage3_prefetch_bucket_size "auto" with a fraction, which DeepSpeed refuses: at
// stage 3, where 0.9 x hidden size squared is no whole number.
bool stops_at_fraction(const Version& deepspeed,
                       const Version& transformers,
                       std::int64_t hidden_size);

}  // namespace zeroplan
