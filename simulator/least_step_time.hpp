// The least that the passes of a rank's step can take: its host thread and its streams, with every
// wait between them, from a device that is idle. Nothing shares anything, no memory is asked for,
// and peers are there at once.
//
// The simulated step is never shorter (tests/property/search_property.cpp): the event loop runs the
// same instructions, and contention, the allocator, full launch queues and peers only delay. It
// takes a hundredth of the event loop's time.
#pragma once

#include "base/units.hpp"
#include "simulator/engines/rank_program.hpp"

namespace zeroplan::simulator {

// Until the compute stream has run the passes of the steady step. Left out is the work that knobs
// of offloading decide beside the weights' way to the GPU: copies to the host, NVMe, the host's
// own. So the value holds for every choice of those knobs.
Seconds least_passes_time(const RankProgram& rank);

}  // namespace zeroplan::simulator
