// Which knob moves memory and time, and by how much: every knob that acts is moved along its grid,
// in both directions, and the step is simulated again.
//
// In: a scenario. Out: the base and every move with its result. A knob is moved to the next grid
// point below and above its value and to the ends of its grid; the workload's micro-batch,
// accumulation, sequence length (halved, doubled), checkpointing and attention are moved too. A
// value that the run cannot have is listed with the reason.
// Checked by tests/unit/tuner/sensitivity_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "base/units.hpp"
#include "tuner/deadline.hpp"
#include "tuner/variations.hpp"

namespace zeroplan::tuner {

struct Move {
  Variation variation;
  StepResult result;
};

struct RefusedMove {
  Variation variation;
  Phrase reason;
};

struct Sensitivity {
  StepResult base;
  std::vector<Move> moves;  // in the order of the knob table, the workload behind it
  std::vector<RefusedMove> refused;
  bool complete = true;  // false: the deadline left moves out
};

// The moves that are tried.
std::vector<Variation> moves_of(const Plan& base);

Sensitivity sensitivity(const Variations& variations,
                        const PredictOptions& options = {},
                        const Deadline& deadline = Deadline());

// Signed differences to the base: what a move adds.
std::int64_t added_gpu_bytes(const Sensitivity& all, const Move& move);   // of peak_total
std::int64_t added_host_bytes(const Sensitivity& all, const Move& move);  // of the host's peak
double added_seconds(const Sensitivity& all, const Move& move);           // of the step

enum class Measure { gpu_memory, host_memory, step_time };

// Indices of the moves that change a measure by at least one percent of its base, the largest
// first, at most `most`. One key's best move in each direction is enough for a list.
std::vector<std::size_t> largest_movers(const Sensitivity& all, Measure measure, std::size_t most);

}  // namespace zeroplan::tuner
