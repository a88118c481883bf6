// How processes find each other: rank 0 listens where the ProcessGroup says, the others connect
// until it does; each tells where it listens itself; then everybody connects to everybody.
// Needs nothing installed.
#pragma once

#include <chrono>
#include <vector>

#include "runtime/processes/process_group.hpp"
#include "runtime/processes/socket.hpp"

namespace zeroplan::runtime {

// Connections to the other ranks, by rank; empty where there is none.
struct Connections {
  std::vector<Descriptor> control;  // rank 0: to all; the others: to rank 0
  std::vector<Descriptor> data;     // to all
};

// Throws SocketError: who did not come to which host and port in time, a port that is in use, two
// processes of the same rank. Precondition: host and port are known.
Connections meet(const ProcessGroup& group, std::chrono::milliseconds patience);

}  // namespace zeroplan::runtime
