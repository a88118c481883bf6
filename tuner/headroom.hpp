// How far a configuration reaches: the largest micro-batch, the longest sequences.
#pragma once

#include <cstdint>
#include <functional>

#include "model/transformer.hpp"

namespace zeroplan::tuner {

struct Headroom {
  std::int64_t largest_micro_batch = 0;
  std::int64_t longest_sequence = 0;
};

inline constexpr std::int64_t kSequenceQuantum = 128;  // sequences go in steps of so many tokens
inline constexpr std::int64_t kMostMicroBatch = 4096;

// The one that it was traced with, where its class loops over the images of a
// batch.
std::int64_t most_micro_batch(const Model& model);

// Tokens beyond which no sequence of the model is looked for: its learned positions, else 2^20.
std::int64_t sequence_limit(const Model& model);

// The largest value in [1, most] for which `fits` holds, where it holds up to a point; 0: for none.
std::int64_t largest_that_fits(std::int64_t most, const std::function<bool(std::int64_t)>& fits);

// The largest value up to `most` with which the simulator says yes, not below `known`, which fits.
// fits(value, play): by the analytic estimate, which is near, or by playing. The search leaves the
// analytic estimate's answer in growing steps and halves what is left.
std::int64_t largest_played(std::int64_t known,
                            std::int64_t most,
                            const std::function<bool(std::int64_t, bool)>& fits);

}  // namespace zeroplan::tuner
