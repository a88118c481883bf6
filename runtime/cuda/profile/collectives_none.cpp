// Where the program is built without NCCL.
#include "runtime/cuda/profile/bench.hpp"

namespace zeroplan::runtime::cuda {

void measure_nccl(Bench& bench, int) {
  bench.findings.notes.emplace_back("no collectives between GPUs: built without NCCL");
}

}  // namespace zeroplan::runtime::cuda
