// How processes find each other: rank 0 listens where the ProcessGroup says, the others call it
// until it does; each tells where it listens itself; then everybody connects to everybody, and all
// begin when all are connected. Needs nothing installed. docs/security.md says who may take part.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/processes/process_group.hpp"
#include "runtime/processes/socket.hpp"

namespace zeroplan::runtime {

// Connections to the other ranks, by rank; empty where there is none.
struct Connections {
  std::vector<Descriptor> control;  // rank 0: to all; the others: to rank 0
  std::vector<Descriptor> data;     // to all
};

// Whether the ports can be reached from other machines, so that a secret is asked for.
bool is_reachable_from_outside(const ProcessGroup& group);

// Throws SocketError: who did not come to which host and port in time, who failed meanwhile and
// why, a port that is in use, two processes of the same rank, another secret. On rank 0 an error is
// told to the others first. Precondition: host and port are known.
Connections meet(const ProcessGroup& group,
                 const std::string& secret,
                 std::chrono::milliseconds patience);

// Instead of meet(), where this rank ends before it: rank 0 hears why, or where this is rank 0 all
// others do, and they end. Takes ten seconds where they do not come. Never throws.
void meet_to_fail(const ProcessGroup& group,
                  const std::string& secret,
                  const std::string& reason) noexcept;

}  // namespace zeroplan::runtime
