// The program of one rank's run and where its parts stand.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/program.hpp"

namespace zeroplan::simulator {

// A section that is played `times` times in a row.
struct RepeatedSection {
  Section section;
  std::int64_t times = 1;
};

// One optimizer step.
struct StepSections {
  std::vector<RepeatedSection> micro_steps;
  Section optimizer;
};

// A run: what differs at its start, and the step that repeats for ever after.
struct RankProgram {
  Program program;
  int rank = 0;  // whose it is, within the data-parallel ranks
  // Of the allocator under it (allocator_options.hpp).
  bool expandable_segments = false;  // blocks are as large as asked for
  Bytes arena_segment;               // of the embedded runtime's Arena
  bool oldest_segment_first = false;
  Section initialisation;
  std::vector<StepSections> first_steps;
  StepSections steady;
};

}  // namespace zeroplan::simulator
