// Links over MPI, where the program was built with it (mpi_links.cpp; mpi_none.cpp otherwise).
//
// A rank that fails tells the others on a communicator of its own and leaves without MPI_Finalize,
// so that mpirun ends the job; a rank that is killed is mpirun's to notice.
#pragma once

#include <memory>

#include "runtime/processes/links.hpp"
#include "runtime/processes/process_group.hpp"

namespace zeroplan::runtime {

bool built_with_mpi();

// The links of MPI_COMM_WORLD. begin() calls MPI_Init_thread and throws CollectiveError where that
// finds another group than the launcher's variables say: the program was built with another MPI
// than it was started by. Precondition: built_with_mpi(); once a process.
std::unique_ptr<Links> mpi_links(const ProcessGroup& group);

}  // namespace zeroplan::runtime
