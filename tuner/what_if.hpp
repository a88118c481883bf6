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

// Without its cells.
SizeGrid grid_around(const Plan& plan);
// The cells of the base's grid.
void simulate_cells(const Variations& variations,
                    const PredictOptions& options,
                    const Deadline& deadline,
                    SizeGrid& grid);

struct AssumptionMove {
  Phrase instead;  // "a node has half the host memory, 31 GiB"
  VariedResult outcome;
};

// `asked`: what was said, where `variations` have every key. The host's memory, the links within a
// node, the lengths of samples, the release of transformers and the attention, as far as nobody
// said them. The network between nodes is in StepResult::at_network.
std::vector<AssumptionMove> if_assumed_wrongly(const Variations& variations,
                                               const Scenario& asked,
                                               const PredictOptions& options,
                                               const Deadline& deadline = Deadline());

}  // namespace zeroplan::tuner
