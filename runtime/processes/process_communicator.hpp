// The collectives between processes, over any Links.
//
// A thread of its own carries out one collective after the other in the order of the calls, so that
// start() returns at once and waits come in any order. Sums are those of in-process ranks to the
// bit: each stretch is summed on one rank, in the order of the ranks.
#pragma once

#include <chrono>
#include <memory>

#include "runtime/collectives/communicator.hpp"
#include "runtime/processes/links.hpp"

namespace zeroplan::runtime {

// Used by one thread. `patience`: how long a collective waits before the group fails. Throws what
// Links::begin() throws.
std::unique_ptr<Communicator> communicator_over(std::unique_ptr<Links> links,
                                                std::chrono::milliseconds patience);

}  // namespace zeroplan::runtime
