// Ranks as threads of one process: the collectives that make every ZeRO stage testable on one
// machine.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/collectives/communicator.hpp"

namespace zeroplan::runtime {

// One communicator a rank, all of one group. Each is used by one thread. `patience`: how long a
// wait lasts before it throws.
std::vector<std::unique_ptr<Communicator>> in_process_ranks(
    int ranks, std::chrono::milliseconds patience = std::chrono::minutes(10));

// Calls body(rank) for all ranks of a group at the same time, each on a thread of its own (rank 0
// on the caller's), and returns when all have ended. A body that throws fails the group, and so
// does a thread that cannot be started: no rank is left waiting. Throws what came first.
void run_in_process(const std::vector<std::unique_ptr<Communicator>>& group,
                    const std::function<void(int)>& body);

}  // namespace zeroplan::runtime
