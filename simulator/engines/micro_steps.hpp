// The micro-steps of one optimizer step as a list of what is written, each with how often it is
// played. Equal ones are written once and played again: from there on where a micro-step does what
// the one before it did and leaves the slots as it found them. What is fetched ahead may alternate
// between buffers: then a few micro-steps in a row are what repeats. A step whose micro-steps never
// repeat is written whole.
//
// Checked by tests/unit/simulator/micro_steps_test.cpp and tests/property/simulation_property.cpp.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "simulator/engines/rank_program.hpp"
#include "simulator/program_writer.hpp"

namespace zeroplan::simulator {

// `distinct`: graphs that the first micro-steps have in turn (varied_lengths.hpp), 1 where all have
// the same. write(micro_step) writes one; the last, which reduces, is written itself.
std::vector<RepeatedSection> write_micro_steps(int accumulation,
                                               std::size_t distinct,
                                               const ProgramWriter& writer,
                                               const std::function<Section(int)>& write);

}  // namespace zeroplan::simulator
