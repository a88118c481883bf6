#include "runtime/processes/join.hpp"

#include <fmt/format.h>

#include "base/diagnostic.hpp"
#include "runtime/processes/mpi_links.hpp"
#include "runtime/processes/process_communicator.hpp"
#include "runtime/processes/tcp_rendezvous.hpp"

namespace zeroplan::runtime {
namespace {

bool by_mpirun(const ProcessGroup& group) {
  return group.launcher == Launcher::openmpi || group.launcher == Launcher::mpich;
}

bool by_mpi(const ProcessGroup& group, const JoinOptions& options) {
  return options.transport == Transport::mpi ||
         (options.transport == Transport::automatic && built_with_mpi() && by_mpirun(group));
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
  if (is_reachable_from_outside(group) && options.secret.empty()) {
    throw InputError(Diagnostic{
        .file = "environment",
        .pointer = "ZEROPLAN_SECRET",
        .expected = "a secret that all ranks have: other machines can reach where they meet",
        .got = "nothing",
        .hint = "make one with openssl rand -hex 32 and export it as ZEROPLAN_SECRET for every "
                "rank, or --secret-file FILE"});
  }
  try {
    return communicator_over(tcp_links(group.rank,
                                       meet(group, options.secret, options.rendezvous),
                                       options.abandoned,
                                       options.times),
                             options.patience);
  } catch (const SocketError& error) {
    throw CollectiveError(fmt::format("the ranks do not come together: {}", error.what()));
  }
}

}  // namespace

std::unique_ptr<Communicator> join(const ProcessGroup& group, const JoinOptions& options) {
  const bool mpi = by_mpi(group, options);
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

void join_to_fail(const ProcessGroup& group,
                  const JoinOptions& options,
                  const std::string& reason) noexcept {
  if (group.ranks > 1 && !by_mpi(group, options)) meet_to_fail(group, options.secret, reason);
}

}  // namespace zeroplan::runtime
