// The communicator of a process that a launcher started.
#pragma once

#include <chrono>
#include <memory>

#include "base/enum_names.hpp"
#include "runtime/collectives/communicator.hpp"
#include "runtime/processes/process_group.hpp"
#include "runtime/processes/tcp_links.hpp"

namespace zeroplan::runtime {

// automatic: MPI where mpirun started this process and the program was built with MPI, else TCP.
enum class Transport { automatic, tcp, mpi };
inline constexpr EnumNames<Transport, 3> kTransportNames{{"auto", "tcp", "mpi"}};

struct JoinOptions {
  Transport transport = Transport::automatic;
  // For all ranks to come: who is killed before has told nobody. Launchers start ranks at once.
  std::chrono::milliseconds rendezvous = std::chrono::seconds(30);
  std::chrono::milliseconds patience = std::chrono::minutes(10);  // for one collective
  Abandoned abandoned;                                            // TCP alone
  TcpTimes times;
  std::string secret;  // of all ranks, over TCP; empty: none (secret.hpp)
};

// Precondition: group.ranks > 1. Throws InputError where the group has no meeting place or MPI was
// asked for and is not there; CollectiveError where the ranks do not come together.
// Where ranks can be reached from other machines, a secret is asked for.
std::unique_ptr<Communicator> join(const ProcessGroup& group, const JoinOptions& options);

// Instead of join(), where this process ends before it: the others hear why and end. Under MPI the
// launcher ends them when this process does. Never throws; takes up to ten seconds.
void join_to_fail(const ProcessGroup& group,
                  const JoinOptions& options,
                  const std::string& reason) noexcept;

}  // namespace zeroplan::runtime
