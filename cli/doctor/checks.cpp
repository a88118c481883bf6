#include "cli/doctor/checks.hpp"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "base/quoting.hpp"
#include "model/releases.hpp"

namespace zeroplan::cli {
namespace {

class Examination {
 public:
  Examination(const MachineState& machine, const std::optional<PlanNeeds>& needs)
      : machine_(machine), needs_(needs) {}

  std::vector<DoctorFinding> all() {
    gpus();
    processes();
    toolkit();
    libraries();
    building();
    nccl();
    network();
    hosts();
    limits();
    memory();
    cores();
    nvme();
    std::stable_sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) {
      return a.severity < b.severity;
    });
    return std::move(found_);
  }

 private:
  void say(Severity severity, std::string code, Phrase message, Phrase reason, Phrase fix) {
    found_.push_back(
        {severity, std::move(code), std::move(message), std::move(reason), std::move(fix)});
  }

  std::int64_t gpus_wanted() const { return needs_ ? needs_->gpus : 1; }

  void gpus() {
    if (machine_.driver_mismatch) {
      say(Severity::error,
          "driver-mismatch",
          phrase("nvidia-smi says \"{}\": the driver was updated and the kernel still runs the old "
                 "one",
                 machine_.driver_failure),
          "no process finds a GPU",
          machine_.container ? "reboot the host: in a container its driver counts"
                             : "sudo reboot, or sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset "
                               "nvidia && sudo modprobe nvidia_uvm");
      return;
    }
    if (!machine_.driver && !machine_.driver_failure.empty()) {
      say(Severity::error,
          "driver-fails",
          phrase("nvidia-smi says \"{}\"", machine_.driver_failure),
          "nothing runs on the GPU",
          "sudo dmesg | grep -iE 'nvrm|nvidia'");
      return;
    }
    if (!machine_.driver) {
      say(Severity::error,
          "no-driver",
          "nvidia-smi does not answer: no driver, or no GPU in this container",
          "nothing runs on the GPU",
          machine_.container ? "start the container with --gpus all"
                             : "install the driver, then: nvidia-smi");
      return;
    }
    const auto count = static_cast<std::int64_t>(machine_.gpus.size());
    if (count < gpus_wanted()) {
      say(Severity::error,
          "too-few-cards",
          phrase("{} of {} GPUs are visible", count, gpus_wanted()),
          "the launcher refuses more ranks than GPUs",
          "nvidia-smi -L; check CUDA_VISIBLE_DEVICES and the container's device list");
    }
    const std::string planned = needs_ ? needs_->gpu_name : "";
    if (count > 0 && !planned.empty() && machine_.gpus.front().name != planned) {
      say(Severity::warning,
          "other-card",
          phrase("planned for {}, found {}", planned, machine_.gpus.front().name),
          "memory and speed were predicted for the planned GPU",
          "plan again for this one: zeroplan gpus lists the names");
    }
  }

  // A GPU that somebody else uses has less memory than the plan counts on.
  void processes() {
    for (const GpuProcess& process : machine_.processes) {
      const Phrase used = process.used ? phrase(", {:.1f} GiB", process.used->gib()) : "";
      say(Severity::warning,
          "stray-process",
          phrase("process {} ({}{}) is on a GPU", process.pid, process.name, used),
          "its memory is missing at the peak; runs that were killed often leave one",
          fmt::format("ps -fp {0}; kill {0}", process.pid));
    }
    if (!machine_.processes.empty()) return;
    for (const GpuState& gpu : machine_.gpus) {
      constexpr double kQuietGib = 1.0;
      if (gpu.used.gib() <= kQuietGib) continue;
      say(Severity::warning,
          "card-in-use",
          phrase("GPU {} has {:.1f} GiB in use and no process to show for it",
                 gpu.index,
                 gpu.used.gib()),
          "another container's process, or one that died",
          "fuser -v /dev/nvidia*");
    }
  }

  // torch's build of extensions compares nvcc with torch.version.cuda; DeepSpeed refuses another
  // major version and lets minor ones pass (op_builder/builder.py assert_no_cuda_mismatch).
  void toolkit() {
    const auto torch = version_of(machine_.libraries.torch_cuda);
    const auto nvcc = version_of(machine_.nvcc);
    const auto driver = version_of(machine_.driver_cuda);
    if (machine_.libraries.torch && !machine_.libraries.torch_cuda &&
        machine_.libraries.torch_failure.empty()) {
      say(Severity::error,
          "torch-without-cuda",
          phrase("torch {} was built without CUDA", *machine_.libraries.torch),
          "torch.cuda.is_available() is false",
          "pip install torch --index-url of a CUDA build (pytorch.org/get-started)");
    }
    if (torch && driver && driver->major < torch->major) {
      say(Severity::error,
          "old-driver",
          phrase("the driver runs CUDA up to {}, torch was built with {}",
                 *machine_.driver_cuda,
                 *machine_.libraries.torch_cuda),
          "CUDA initialisation fails",
          "install a newer driver, or a torch built for that CUDA");
    }
    if (torch && nvcc && nvcc->major != torch->major) {
      say(Severity::error,
          "cuda-mismatch",
          phrase("nvcc is {}, torch was built with CUDA {}",
                 *machine_.nvcc,
                 *machine_.libraries.torch_cuda),
          "DeepSpeed stops where it builds CPU Adam or another operator: \"Installed CUDA version "
          "does not match the version torch was compiled with\"",
          phrase("install the CUDA {} toolkit and set CUDA_HOME to it", torch->major));
    }
    if (torch && !nvcc) {
      say(needs_ && needs_->cpu_optimizer ? Severity::error : Severity::warning,
          "no-nvcc",
          "nvcc was not found",
          "DeepSpeed builds its operators (CPU Adam, fused Adam, async I/O) when they are first "
          "used",
          "install the CUDA toolkit and set CUDA_HOME, or install DeepSpeed with prebuilt "
          "operators "
          "(DS_BUILD_OPS=1)");
    }
  }

  void libraries() {
    const Libraries& found = machine_.libraries;
    if (!found.python) {
      say(Severity::error, "no-python", "python3 does not run", "nothing starts", "which python3");
      return;
    }
    if (!found.torch) {
      say(Severity::error,
          "no-torch",
          "python3 has no torch",
          "nothing starts",
          "pip install torch");
    }
    if (!found.torch_failure.empty()) {
      say(Severity::error,
          "torch-fails",
          phrase("torch {} is installed and import torch ends with {}",
                 *found.torch,
                 found.torch_failure),
          "nothing starts",
          "python3 -c 'import torch' shows all of it; unset LD_LIBRARY_PATH where the line names a "
          "library, else pip install --force-reinstall torch");
    }
    if (!found.deepspeed) {
      say(Severity::error,
          "no-deepspeed",
          "python3 has no deepspeed",
          "nothing starts",
          "pip install deepspeed");
    }
    if (!found.failure.empty() && found.torch_failure.empty()) {
      say(Severity::error,
          "import-fails",
          phrase("import deepspeed ends with {}", found.failure),
          "nothing starts",
          "python3 -c 'import deepspeed'");
    }
    combinations(found);
  }

  // Combinations that were seen to break; tests/reference/README.md has the environments.
  void combinations(const Libraries& found) {
    const auto deepspeed = version_of(found.deepspeed);
    const auto torch = version_of(found.torch);
    const auto numpy = version_of(found.numpy);
    const auto pydantic = version_of(found.pydantic);
    if (!deepspeed) return;
    const auto broken = [&](Phrase message, Phrase fix) {
      say(Severity::error,
          "broken-combination",
          std::move(message),
          "deepspeed does not import",
          std::move(fix));
    };
    if (torch && acts(ReleaseRule::annotates_with_list, *deepspeed) &&
        !acts(ReleaseRule::infers_list_annotations, *torch)) {
      broken(phrase("deepspeed {} annotates operators with list[int], which torch {} refuses",
                    *found.deepspeed,
                    *found.torch),
             "pip install 'torch>=2.7', or 'deepspeed<0.19'");
    }
    if (torch && !acts(ReleaseRule::imports_newer_names, *deepspeed) &&
        acts(ReleaseRule::drops_old_names, *torch)) {
      broken(phrase("deepspeed {} imports names that torch {} has dropped",
                    *found.deepspeed,
                    *found.torch),
             "pip install 'deepspeed>=0.14.5'");
    }
    if (numpy && !acts(ReleaseRule::imports_newer_names, *deepspeed) && *numpy >= Version{2, 0}) {
      broken(phrase("deepspeed {} imports numpy.BUFSIZE, which numpy {} has dropped",
                    *found.deepspeed,
                    *found.numpy),
             "pip install 'numpy<2'");
    }
    if (pydantic && acts(ReleaseRule::needs_pydantic_2, *deepspeed) && *pydantic < Version{2, 0}) {
      broken(phrase("deepspeed {} needs pydantic 2, pydantic {} is installed",
                    *found.deepspeed,
                    *found.pydantic),
             "pip install 'pydantic>=2'");
    }
  }

  void building() {
    if (!machine_.ninja) {
      say(Severity::error,
          "no-ninja",
          "ninja is not on PATH",
          "operators are not built: \"Ninja is required to load C++ extensions\"",
          "pip install ninja, or apt-get install ninja-build");
    }
    for (const std::string& lock : machine_.locks) {
      say(Severity::error,
          "extension-lock",
          phrase("{} is there", lock),
          "a build that was interrupted: the next one waits for the lock without a word "
          "(torch/utils/file_baton.py)",
          fmt::format("pgrep -f cpp_extension || rm {}", sh_path(lock)));
    }
  }

  void nccl() {
    const auto version = version_of(machine_.libraries.nccl);
    // NCCL 2.10.3 brought ncclBfloat16.
    if (version && needs_ && needs_->bf16 && *version < Version{2, 10, 3}) {
      say(Severity::error,
          "nccl-bf16",
          phrase("NCCL {} has no bf16", *machine_.libraries.nccl),
          "the first reduction of a bf16 gradient fails",
          "install a torch with a newer NCCL");
    }
    if (machine_.variable("NCCL_P2P_DISABLE") == "1" && machine_.peer_to_peer == true) {
      say(Severity::warning,
          "p2p-disabled",
          "NCCL_P2P_DISABLE=1, though the GPUs reach each other",
          "collectives go through host memory: ZeRO-3 was 60 times slower (LLaMA-Factory #3499)",
          "unset NCCL_P2P_DISABLE");
    }
    if (machine_.peer_to_peer == false && machine_.gpus.size() > 1) {
      say(Severity::info,
          "no-p2p",
          "the GPUs do not reach each other directly",
          "collectives go through host memory; the plan knows it for GeForce GPUs",
          "nvidia-smi topo -m");
    }
  }

  void network() {
    if (!machine_.unresolved_name.empty()) {
      say(Severity::warning,
          "own-name",
          phrase("this machine's own name {} does not resolve to an address",
                 machine_.unresolved_name),
          "gloo and MPI look it up: they wait for a minute, or end with \"Name or service not "
          "known\"",
          "echo \"127.0.1.1 $(hostname)\" | sudo tee -a /etc/hosts");
    }
    for (const char* name : {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
      const auto said = machine_.variable(name);
      if (!said || said->empty() || said->front() == '^' || machine_.interfaces.empty()) continue;
      std::istringstream list(*said);
      bool there = false;
      for (std::string one; std::getline(list, one, ',');) {
        const bool exact = one.starts_with("=");
        const std::string wanted = exact ? one.substr(1) : one;
        for (const std::string& interface : machine_.interfaces) {
          there = there || (exact ? interface == wanted : interface.starts_with(wanted));
        }
      }
      if (there) continue;
      std::string names;
      for (const std::string& one : machine_.interfaces) names += (names.empty() ? "" : ", ") + one;
      say(Severity::error,
          "no-interface",
          phrase("{}={} names no interface of this machine ({})", name, *said, names),
          "the first collective hangs, or ends with \"no socket interface found\"",
          phrase("export {}=<one of them>", name));
    }
  }

  // What ssh says, told apart: a copied key mends a refused password alone.
  void unreached(const RemoteHost& host) {
    const std::string name = sh_quoted(host.name);
    if (host.unreached == SshFailure::no_address) {
      say(Severity::error,
          "no-address",
          phrase("{} does not resolve to an address: {}", host.name, host.failure),
          "the launcher ends, and so does a rendezvous by that name",
          phrase("a line \"ADDRESS {}\" in /etc/hosts of every host, or addresses in the hostfile",
                 host.name));
      return;
    }
    if (host.unreached == SshFailure::unknown_key) {
      say(Severity::error,
          "ssh-host-key",
          phrase("ssh does not know the key of {}: {}", host.name, host.failure),
          "the launcher waits, or ends with exit code 255",
          fmt::format("ssh-keyscan -H {} >> ~/.ssh/known_hosts", name));
      return;
    }
    if (host.unreached == SshFailure::no_answer) {
      say(Severity::error,
          "no-sshd",
          phrase("{} does not answer ssh: {}", host.name, host.failure),
          "the launcher waits, or ends with exit code 255",
          "sshd must run there (in a container: inside it), and its port stand in ~/.ssh/config "
          "where it is not 22");
      return;
    }
    say(Severity::error,
        "no-ssh",
        phrase("{} is not reached without a password: {}", host.name, host.failure),
        "the launcher waits, or ends with exit code 255",
        fmt::format("ssh-copy-id {}", name));
  }

  void hosts() {
    if (machine_.hosts.size() > 1 && !machine_.pdsh) {
      say(Severity::warning,
          "no-pdsh",
          "pdsh is not installed",
          "the deepspeed launcher's default for several hosts",
          "apt-get install pdsh, or deepspeed --launcher OpenMPI, or torchrun on each host");
    }
    for (const RemoteHost& host : machine_.hosts) {
      if (!host.reached) {
        unreached(host);
        continue;
      }
      if (!host.has_folder) {
        say(Severity::error,
            "no-folder",
            phrase("{} has no folder of this path", host.name),
            "the launcher changes into the same path on every host",
            "put the job on a shared file system, or copy it to the same path");
      }
      compare(host);
    }
  }

  void compare(const RemoteHost& host) {
    const Libraries& here = machine_.libraries;
    const Libraries& there = host.libraries;
    const auto differ = [&](std::string_view what,
                            const std::optional<std::string>& ours,
                            const std::optional<std::string>& theirs) {
      if (ours == theirs) return;
      say(Severity::error,
          "versions-differ",
          phrase("{} is {} here and {} on {}",
                 what,
                 ours.value_or("missing"),
                 theirs.value_or("missing"),
                 host.name),
          "ranks hang or fail at the first collective",
          phrase("install the same {} on every host", what));
    };
    differ("torch", here.torch, there.torch);
    differ("torch's CUDA", here.torch_cuda, there.torch_cuda);
    differ("NCCL", here.nccl, there.nccl);
    differ("deepspeed", here.deepspeed, there.deepspeed);
    differ("transformers", here.transformers, there.transformers);
  }

  void limits() {
    constexpr double kEnoughGib = 1.0;
    if (machine_.shared_memory && machine_.shared_memory->gib() < kEnoughGib) {
      say(Severity::error,
          "small-shm",
          phrase("/dev/shm has {:.0f} MiB", machine_.shared_memory->gib() * 1024.0),
          "NCCL and data loaders share memory there: \"exits with return code = -7\"",
          machine_.container ? "start the container with --shm-size=16g or --ipc=host"
                             : "mount -o remount,size=16G /dev/shm");
    }
    const Bytes pinned = needs_ ? needs_->pinned_memory : Bytes::zero();
    const auto locked = machine_.locked_memory;
    if (locked && !locked->is_infinite() && (pinned > *locked || (needs_ && needs_->nodes > 1))) {
      say(needs_ && needs_->nodes > 1 ? Severity::warning : Severity::info,
          "memlock",
          phrase("a process may lock {:.0f} MiB", locked->gib() * 1024.0),
          "RDMA registration fails beyond it; cudaHostAlloc does not count, DeepSpeed's native "
          "pinning "
          "(mlock) does",
          "ulimit -l unlimited, or --ulimit memlock=-1 for the container");
    }
  }

  void memory() {
    if (!needs_ || !machine_.available_memory) return;
    if (needs_->host_memory > *machine_.available_memory) {
      say(Severity::error,
          "host-memory",
          phrase("the plan needs {:.0f} GiB of host memory, {:.0f} GiB are free",
                 needs_->host_memory.gib(),
                 machine_.available_memory->gib()),
          "the kernel ends a rank: \"exits with return code = -9\"",
          "ps aux --sort=-rss | head; or plan with --host-memory");
    }
  }

  void cores() {
    const bool heavy = needs_ && needs_->cpu_optimizer;
    const auto threads = machine_.variable("OMP_NUM_THREADS");
    if (heavy && threads == "1") {
      say(Severity::warning,
          "omp-threads",
          "OMP_NUM_THREADS=1",
          "CPU Adam runs on one core a rank",
          fmt::format("export OMP_NUM_THREADS={}",
                      std::max<std::int64_t>(1, machine_.cores / gpus_wanted())));
    }
    if (heavy && !machine_.numactl) {
      say(Severity::warning,
          "no-numactl",
          "numactl is not installed",
          "--bind_cores_to_rank needs it; unbound ranks share cores and sockets",
          "apt-get install numactl");
    }
  }

  void nvme() {
    if (!machine_.nvme) {
      if (needs_ && needs_->nvme > Bytes::zero()) {
        say(Severity::warning,
            "nvme-unchecked",
            "the plan swaps to NVMe and no folder was named",
            "its room and speed were not looked at",
            "zeroplan doctor --nvme-path FOLDER --measure-nvme");
      }
      return;
    }
    const NvmeState& state = *machine_.nvme;
    if (!state.device || state.device->find("nvme") == std::string::npos) {
      say(Severity::warning,
          "not-nvme",
          phrase("{} is on {}", state.path, state.device.value_or("no mounted device")),
          "swapping is planned with the speed of NVMe drives",
          fmt::format("findmnt -T {}", sh_path(state.path)));
    }
    if (needs_ && state.free && needs_->nvme > *state.free) {
      say(Severity::error,
          "nvme-room",
          phrase("the plan writes {:.0f} GiB, {} has {:.0f} GiB free",
                 needs_->nvme.gib(),
                 state.path,
                 state.free->gib()),
          "the first step ends with \"no space left on device\"",
          fmt::format("df -h {}", sh_path(state.path)));
    }
    if (needs_ && state.read && *state.read < needs_->nvme_read) {
      say(Severity::warning,
          "slow-nvme",
          phrase("{} reads {:.1f} GB/s with one thread, the plan counts on {:.1f} GB/s",
                 state.path,
                 state.read->value() / 1e9,
                 needs_->nvme_read.value() / 1e9),
          "every step waits longer than predicted",
          "plan again with the measured rate in the cluster's nvme section");
    }
  }

  const MachineState& machine_;
  const std::optional<PlanNeeds>& needs_;
  std::vector<DoctorFinding> found_;
};

}  // namespace

std::vector<DoctorFinding> examine(const MachineState& machine,
                                   const std::optional<PlanNeeds>& needs) {
  return Examination(machine, needs).all();
}

}  // namespace zeroplan::cli
