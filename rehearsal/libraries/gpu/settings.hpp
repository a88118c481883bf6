// What the emulated GPU is, as the environment says it. `zeroplan rehearse` sets these variables;
// beside the user's own CUDA_VISIBLE_DEVICES nothing else is read. Units: bytes.
//
//   ZEROPLAN_GPU_MEMORY           what CUDA reports as the GPU's total
//   ZEROPLAN_GPU_CONTEXT          gone before the first allocation: CUDA's context, NCCL, other
//   libraries ZEROPLAN_GPU_CAPABILITY       "8.0" ZEROPLAN_GPU_MULTIPROCESSORS, ZEROPLAN_GPU_L2,
//   ZEROPLAN_GPU_NAME, ZEROPLAN_GPU_COUNT ZEROPLAN_GPU_EVENTS           done: work ends when it
//   is enqueued; pending: when something waits for it ZEROPLAN_GPU_CUDA, ZEROPLAN_GPU_CUDNN,
//   ZEROPLAN_GPU_NCCL   versions as those libraries number them ZEROPLAN_GPU_WORK file for a line
//   of everything that is enqueued; %p is the process
//   CUDA_VISIBLE_DEVICES           which of the GPUs the program sees, as CUDA reads it
#pragma once

#include <cstddef>
#include <string>

namespace zeroplan::gpu {

enum class Ending { done, pending };

struct Settings {
  std::size_t memory = std::size_t{80} << 30;
  std::size_t context = std::size_t{512} << 20;
  int major = 8;
  int minor = 0;
  int multiprocessors = 108;
  std::size_t l2 = std::size_t{40} << 20;
  std::string name = "NVIDIA A100-SXM4-80GB";
  int devices = 1;  // that the program sees
  int gpus = 1;     // of the node, which NVML counts whatever is visible
  Ending ending = Ending::done;
  int cuda = 12000;
  int cudnn = 90100;
  int nccl = 22105;
  std::string work_file;

  int capability() const { return major * 10 + minor; }
  // Of the compiled kernels that such a GPU runs: PyTorch's wheels have none for 8.9 and run those
  // for 8.6.
  int kernel_capability() const;
  // Per multiprocessor and per block, as CUDA's programming guide lists them by capability.
  int threads_per_multiprocessor() const;
  int shared_per_multiprocessor() const;
  int shared_per_block() const;  // opted in
};

// How many of `GPUs` CUDA shows where CUDA_VISIBLE_DEVICES is `text`: those named until the first
// that is none.
int visible_devices(const std::string& text, int gpus);

// Read when first called.
const Settings& settings();
// Read anew: a process that forked before it used the GPU is another one from here on.
void read_settings_again();

// The same from a given reader of variables, for tests. `read` returns null for one that is not
// set.
Settings settings_from(const char* (*read)(const char* name));

}  // namespace zeroplan::gpu
