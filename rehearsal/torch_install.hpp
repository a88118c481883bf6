// Which Python a command runs, and the PyTorch in it: found without importing torch.
#pragma once

#include <string>
#include <vector>

namespace zeroplan::rehearsal {

struct TorchInstall {
  std::string python;   // the interpreter, an absolute path
  std::string library;  // torch/lib, an absolute path
  std::string version;  // "2.11.0"
  std::string cuda;     // "13.0"
  // Shared libraries of the packages beside torch (bitsandbytes, flash-attn, ...), absolute paths.
  std::vector<std::string> beside;
  int cuda_number = 0;  // 13000: MAJOR * 1000 + MINOR * 10
  // As those libraries number themselves: what the wheel asks for, else what its CUDA's torches ask
  // for.
  int cudnn_number = 0;
  int nccl_number = 0;
};

// The interpreter that `command` runs: its first word, the one that its first word names on its
// first line (torchrun, accelerate, deepspeed), else python3 or python on the path. Throws
// InputError where there is none.
std::string python_of_command(const std::vector<std::string>& command);

// Throws InputError, with what to install, for a Python without torch and a torch for CPUs or
// another maker's GPUs.
TorchInstall find_torch(const std::string& python);

// Texts of a release as numbers: "13.0" -> 13000, and "9.19.0.56" -> 91900, "8.9.2.26" -> 8902,
// "2.28.9" -> 22809.
int cuda_number(const std::string& version);
int cudnn_number(const std::string& version);
int nccl_number(const std::string& version);

}  // namespace zeroplan::rehearsal
