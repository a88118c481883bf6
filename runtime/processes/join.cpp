#include "runtime/processes/join.hpp"

#include <fmt/format.h>

#include "model/diagnostic.hpp"
#include "runtime/processes/mpi_links.hpp"
#include "runtime/processes/process_communicator.hpp"
#include "runtime/processes/tcp_rendezvous.hpp"

namespace zeroplan::runtime {
namespace {

bool by_mpirun(const ProcessGroup& group) {
  return group.launcher == Launcher::openmpi || group.launcher == Launcher::mpich;
}

std::unique_ptr<Communicator> join_by_tcp(const ProcessGroup& group, const JoinOptions& options) {
  if (group.host.empty()) {
    throw InputError(Diagnostic{
        .file = "environment",
        .pointer = "MASTER_ADDR",
        .expected = "the host of rank 0, where the ranks meet",
        .got = "nothing",
        .hint = by_mpirun(group) && !built_with_mpi()
                    ? "mpirun -x MASTER_ADDR=HOST; or build with libopenmpi-dev installed"
                    : ""});
  }
  try {
    return communicator_over(
        tcp_links(group.rank, meet(group, options.rendezvous), options.abandoned, options.times),
        options.patience);
  } catch (const SocketError& error) {
    throw CollectiveError(fmt::format("the ranks do not come together: {}", error.what()));
  }
}

}  // namespace

std::unique_ptr<Communicator> join(const ProcessGroup& group, const JoinOptions& options) {
  const bool mpi =
      options.transport == Transport::mpi ||
      (options.transport == Transport::automatic && built_with_mpi() && by_mpirun(group));
  if (!mpi) return join_by_tcp(group, options);
  if (!built_with_mpi()) {
    throw InputError(Diagnostic{.file = "command line",
                                .pointer = "--collectives",
                                .expected = "auto or tcp",
                                .got = "mpi, and this program was built without MPI",
                                .hint = "install libopenmpi-dev and build again"});
  }
  return communicator_over(mpi_links(group), options.patience);
}

}  // namespace zeroplan::runtime
