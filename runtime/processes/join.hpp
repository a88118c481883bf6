// The communicator of a process that a launcher started.
#pragma once

#include <chrono>
#include <memory>

#include "model/enum_names.hpp"
#include "runtime/collectives/communicator.hpp"
#include "runtime/processes/process_group.hpp"
#include "runtime/processes/tcp_links.hpp"

namespace zeroplan::runtime {

// automatic: MPI where mpirun started this process and the program was built with MPI, else TCP.
enum class Transport { automatic, tcp, mpi };
inline constexpr EnumNames<Transport, 3> kTransportNames{{"auto", "tcp", "mpi"}};

struct JoinOptions {
  Transport transport = Transport::automatic;
  std::chrono::milliseconds rendezvous = std::chrono::minutes(5);  // for all ranks to come
  std::chrono::milliseconds patience = std::chrono::minutes(10);   // for one collective
  Abandoned abandoned;                                             // TCP alone
  TcpTimes times;
};

// Precondition: group.ranks > 1. Throws InputError where the group has no meeting place or MPI was
// asked for and is not there; CollectiveError where the ranks do not come together.
std::unique_ptr<Communicator> join(const ProcessGroup& group, const JoinOptions& options);

}  // namespace zeroplan::runtime
