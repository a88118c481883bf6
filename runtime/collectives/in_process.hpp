// Ranks as threads of one process: the collectives that make every ZeRO stage testable on one
// machine.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "runtime/collectives/communicator.hpp"

namespace zeroplan::runtime {

// One communicator a rank, all of one group. Each is used by one thread. `patience`: how long a
// wait lasts before it throws.
std::vector<std::unique_ptr<Communicator>> in_process_ranks(
    int ranks, std::chrono::milliseconds patience = std::chrono::minutes(10));

}  // namespace zeroplan::runtime
