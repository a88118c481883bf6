// What the commands of `zeroplan doctor` said, read into facts. Absent: the command does not exist
// or did not say it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "cli/doctor/probe.hpp"
#include "model/software.hpp"

namespace zeroplan::cli {

struct GpuState {
  int index = 0;
  std::string name;
  Bytes used;
  Bytes total;
};

struct GpuProcess {
  std::string pid;
  std::string name;
  std::optional<Bytes> used;  // containers hide it
};

// As Python sees them.
struct Libraries {
  bool python = false;         // python3 runs at all
  bool torch_imports = false;  // it said of which CUDA it is, or of none
  std::optional<std::string> torch, torch_cuda, nccl, deepspeed, transformers, accelerate, numpy,
      pydantic;
  std::string failure;        // the last line where deepspeed does not import
  std::string torch_failure;  // the same of torch, which is installed
};

// Why ssh did not reach a host, as far as its words tell.
enum class SshFailure { no_login, no_address, unknown_key, no_answer };

struct RemoteHost {
  std::string name;
  bool reached = false;
  SshFailure unreached = SshFailure::no_login;
  bool has_folder = false;  // the working directory exists there too
  Libraries libraries;
  std::string failure;  // what ssh said
};

struct NvmeState {
  std::string path;
  std::optional<std::string> device;  // "/dev/nvme0n1p1"
  std::optional<Bytes> free;
  std::optional<BytesPerSecond> write, read;  // where it was measured
};

struct MachineState {
  std::optional<std::string> driver;       // "550.54.15"
  std::string driver_failure;              // what nvidia-smi says where it is there and fails
  bool driver_mismatch = false;            // the kernel's part of the driver is of another release
  std::optional<std::string> driver_cuda;  // newest CUDA the driver runs, "12.4"
  std::vector<GpuState> gpus;
  std::vector<GpuProcess> processes;
  std::optional<bool> peer_to_peer;  // can every pair copy directly? absent: one GPU, or not said
  std::optional<std::string> nvcc;   // "12.4"
  Libraries libraries;
  bool ninja = false;
  bool numactl = false;
  bool pdsh = false;
  std::vector<std::string> locks;       // files of torch's extension cache that stop a build
  std::vector<std::string> interfaces;  // of the network
  std::string unresolved_name;          // this machine's own, where it stands for no address
  std::optional<Bytes> shared_memory;   // size of /dev/shm
  std::optional<Bytes> locked_memory;   // ulimit -l; infinite: unlimited
  std::optional<Bytes> available_memory;
  std::int64_t cores = 0;
  bool container = false;
  std::vector<std::pair<std::string, std::string>> environment;  // of the variables that matter
  std::vector<RemoteHost> hosts;
  std::optional<NvmeState> nvme;

  std::optional<std::string> variable(std::string_view name) const;
};

struct Questions {
  std::vector<std::string> hosts;        // names of a hostfile
  std::optional<std::string> nvme_path;  // of the swap folder
  bool measure_nvme = false;             // writes and removes a file of 1 GiB there
};

MachineState look_at(Probe& probe, const Questions& questions);

// "12.4" of "12.4.131"; absent where the text is no version.
std::optional<Version> version_of(const std::optional<std::string>& text);

}  // namespace zeroplan::cli
