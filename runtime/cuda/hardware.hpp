// The door to GPUs: which there are, and what a rank on one runs on (gpu_profile.hpp measures
// them). No CUDA header is needed to include this; where the program was built without CUDA the
// same functions say so.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "runtime/train/trainer.hpp"

namespace zeroplan::runtime::cuda {

struct Gpu {
  std::string name;          // as the driver calls it
  Bytes memory;              // of the GPU
  int major = 0, minor = 0;  // compute capability
};

struct Gpus {
  bool built = false;  // with CUDA
  std::vector<Gpu> found;
  std::string problem;  // why none was found: what the driver said
};

// Asks the driver; never throws. No driver and no device are the same to us: nothing found.
Gpus find_gpus();

// Which libraries this program was built with: "CUDA 13.0, NCCL 2.28.9, CUPTI".
std::string built_with();

// Who has computed attention in this process; empty where nobody has on a GPU.
// "forward: cuDNN 9.19.0; backward: own kernels (why not cuDNN)"
std::string attention_computed_by();

struct RankPlacement {
  int ranks = 1;
  int local_rank = 0;      // of this process; ranks as threads: ignored
  bool processes = false;  // a process is a rank
};

// What TrainingSetup::hardware asks for. Ranks as threads get a GPU each where there are as many,
// and NCCL between them; else they share the first, and this program's own collectives. Ranks as
// processes get the GPU of their local rank, and NCCL. Kernels by CUDA graphs where the
// environment's ZEROPLAN_CUDA_GRAPHS is on, but of a rank that is traced. Throws InputError where a
// process finds no GPU of its own, or there is no NCCL. Precondition: find_gpus() found one.
std::function<RankHardware(Communicator&, int, bool)> hardware(const RankPlacement& placement);

}  // namespace zeroplan::runtime::cuda
