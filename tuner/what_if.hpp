// An answer hangs on its sizes and assumptions: the same plan with other lengths and batches, and
// with each thing that was assumed as it may be instead; every one is simulated.
// Checked by tests/unit/tuner/what_if_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "base/phrase.hpp"
#include "tuner/deadline.hpp"
#include "tuner/variations.hpp"

namespace zeroplan::tuner {

// A quarter to four times the plan's length and micro-batch, by factors of two, within what the
// model can have.
struct SizeGrid {
  std::vector<std::int64_t> sequence_lengths;   // tokens
  std::vector<std::int64_t> micro_batch_sizes;  // sequences
  std::vector<VariedResult> cells;              // by length, then by micro-batch
};

SizeGrid size_grid(const Variations& variations,
                   const PredictOptions& options,
                   const Deadline& deadline = Deadline());

struct AssumptionMove {
  Phrase instead;  // "a node has half the host memory, 31 GiB"
  VariedResult outcome;
};

// `asked`: what was said, where `variations` have every key. The host's memory, the network between
// nodes, the lengths of samples, the release of transformers and the attention, as far as nobody
// said them.
std::vector<AssumptionMove> if_assumed_wrongly(const Variations& variations,
                                               const Scenario& asked,
                                               const PredictOptions& options,
                                               const Deadline& deadline = Deadline());

}  // namespace zeroplan::tuner
