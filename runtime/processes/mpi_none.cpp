// Where the program is built without MPI.
#include "base/check.hpp"
#include "runtime/processes/mpi_links.hpp"

namespace zeroplan::runtime {

bool built_with_mpi() { return false; }

std::unique_ptr<Links> mpi_links(const ProcessGroup&) {
  ZP_CHECK(false, "nobody asks for MPI where there is none");
}

}  // namespace zeroplan::runtime
