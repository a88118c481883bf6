#include "cli/doctor/machine.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <sstream>

#include "base/quoting.hpp"

namespace zeroplan::cli {
namespace {

constexpr const char* kGpus =
    "nvidia-smi --query-gpu=index,name,driver_version,memory.used,memory.total "
    "--format=csv,noheader,nounits";
constexpr const char* kProcesses =
    "nvidia-smi --query-compute-apps=pid,used_memory,process_name --format=csv,noheader,nounits";
constexpr const char* kDriver = "nvidia-smi";
constexpr const char* kPeers = "nvidia-smi topo -p2p r";
constexpr const char* kPython =
    "python3 -c \"import importlib.metadata as m\n"
    "for n in ('torch','deepspeed','transformers','accelerate','numpy','pydantic'):\n"
    "    try: print(n, m.version(n))\n"
    "    except m.PackageNotFoundError: pass\n"
    "try:\n"
    "    import torch; print('cuda', torch.version.cuda)\n"
    "    print('nccl', '.'.join(map(str, torch.cuda.nccl.version())))\n"
    "except Exception: pass\n"
    "try: import deepspeed\n"
    "except ModuleNotFoundError: pass\n"
    "except BaseException as e: print('failure', type(e).__name__ + ': ' + "
    "str(e).splitlines()[0][:200])\n"
    "\" 2>/dev/null";
// Why torch does not import, asked where it is installed and said nothing of its CUDA.
constexpr const char* kTorch = "python3 -c 'import torch' 2>&1 | tail -n 1";
// getent ends with 2 for a name that it does not find.
constexpr const char* kOwnName = "hostname; getent hosts \"$(hostname)\" >/dev/null";
constexpr const char* kLocks =
    "find \"${TORCH_EXTENSIONS_DIR:-$HOME/.cache/torch_extensions}\" -name lock 2>/dev/null";
constexpr const char* kInterfaces = "ls /sys/class/net";
constexpr const char* kVariables =
    "env | grep -E '^(NCCL|GLOO|CUDA|OMP|DS|PYTORCH|TORCH|LD_LIBRARY)_[A-Z_0-9]*='";

// ssh joins its words with spaces for the other host's shell: the folder's name needs quotes of its
// own there, each ' in it as '\''.
constexpr const char* kHasFolder = "\"test -d '$(pwd | sed \"s/'/'\\\\\\\\''/g\")'\"";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) {
    const std::size_t first = field.find_first_not_of(' ');
    fields.push_back(first == std::string::npos ? "" : field.substr(first));
  }
  return fields;
}

std::optional<std::int64_t> integer_of(const std::string& text) {
  std::int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc()) return std::nullopt;
  return number;
}

// The word behind `label`: "release" in "Cuda compilation tools, release 12.4, V12.4.131".
std::optional<std::string> word_after(const std::string& text, std::string_view label) {
  const std::size_t at = text.find(label);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t begin = text.find_first_not_of(" :", at + label.size());
  if (begin == std::string::npos) return std::nullopt;
  const std::size_t end = text.find_first_of(" ,|\n\t", begin);
  return text.substr(begin, end == std::string::npos ? std::string::npos : end - begin);
}

void read_gpus(Probe& probe, MachineState& machine) {
  const CommandOutput gpus = probe.run(kGpus);
  constexpr int kNoSuchCommand = 127;
  if (!gpus.worked()) {
    const std::vector<std::string> said = lines_of(gpus.text);
    if (gpus.exit != kNoSuchCommand && !said.empty()) machine.driver_failure = said.front();
    machine.driver_mismatch = gpus.text.find("version mismatch") != std::string::npos;
    return;
  }
  for (const std::string& line : lines_of(gpus.text)) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() < 5) continue;
    machine.driver = fields[2];
    machine.gpus.push_back({static_cast<int>(integer_of(fields[0]).value_or(0)),
                            fields[1],
                            Bytes::mib(integer_of(fields[3]).value_or(0)),
                            Bytes::mib(integer_of(fields[4]).value_or(0))});
  }
  machine.driver_cuda = word_after(probe.run(kDriver).text, "CUDA Version");
  const CommandOutput processes = probe.run(kProcesses);
  if (processes.worked()) {
    for (const std::string& line : lines_of(processes.text)) {
      const std::vector<std::string> fields = fields_of(line);
      if (fields.size() < 3 || !integer_of(fields[0])) continue;
      // The number alone: it stands in a command that is proposed.
      GpuProcess process{std::to_string(*integer_of(fields[0])), fields[2], std::nullopt};
      if (const auto used = integer_of(fields[1])) process.used = Bytes::mib(*used);
      machine.processes.push_back(process);
    }
  }
  if (machine.gpus.size() < 2) return;
  const CommandOutput peers = probe.run(kPeers);
  if (!peers.worked()) return;
  const bool refused = peers.text.find("NS") != std::string::npos;
  const bool allowed = peers.text.find("OK") != std::string::npos;
  // The legend under the table names every code: a table row begins with "GPU".
  bool every = allowed;
  for (const std::string& line : lines_of(peers.text)) {
    const std::size_t start = line.find_first_not_of(" \t");
    if (refused && line.compare(start, 3, "GPU") == 0 && line.find("NS") != std::string::npos) {
      every = false;
    }
  }
  machine.peer_to_peer = every;
}

Libraries read_libraries(const CommandOutput& output) {
  Libraries found;
  if (!output.worked()) return found;
  found.python = true;
  for (const std::string& line : lines_of(output.text)) {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    const std::string key = line.substr(0, space);
    const std::string value = line.substr(space + 1);
    if (key == "torch") found.torch = value;
    if (key == "cuda") found.torch_imports = true;
    if (key == "cuda" && value != "None") found.torch_cuda = value;
    if (key == "nccl") found.nccl = value;
    if (key == "deepspeed") found.deepspeed = value;
    if (key == "transformers") found.transformers = value;
    if (key == "accelerate") found.accelerate = value;
    if (key == "numpy") found.numpy = value;
    if (key == "pydantic") found.pydantic = value;
    if (key == "failure") found.failure = value;
  }
  return found;
}

Libraries read_own_libraries(Probe& probe) {
  Libraries found = read_libraries(probe.run(kPython));
  if (!found.torch || found.torch_imports) return found;
  const std::vector<std::string> said = lines_of(probe.run(kTorch).text);
  found.torch_failure = said.empty() ? "no word" : said.back();
  return found;
}

void read_host(Probe& probe, MachineState& machine) {
  if (const auto lines = lines_of(probe.run("df -B1 --output=size /dev/shm").text);
      lines.size() > 1) {
    const std::size_t first = lines[1].find_first_not_of(' ');
    if (const auto bytes = integer_of(lines[1].substr(first)))
      machine.shared_memory = Bytes::of(*bytes);
  }
  const CommandOutput locked = probe.run("ulimit -l");
  if (locked.worked()) {
    const std::vector<std::string> lines = lines_of(locked.text);
    if (!lines.empty() && lines[0] == "unlimited") machine.locked_memory = Bytes::infinite();
    if (!lines.empty()) {
      if (const auto kib = integer_of(lines[0])) machine.locked_memory = Bytes::of(*kib * 1024);
    }
  }
  if (const auto word = word_after(probe.run("cat /proc/meminfo").text, "MemAvailable:")) {
    if (const auto kib = integer_of(*word)) machine.available_memory = Bytes::of(*kib * 1024);
  }
  machine.cores = integer_of(probe.run("nproc").text).value_or(0);
  machine.container = probe.run("test -e /.dockerenv || test -e /run/.containerenv").worked();
  machine.ninja = probe.run("ninja --version").worked();
  machine.numactl = probe.run("command -v numactl").worked();
  machine.pdsh = probe.run("command -v pdsh").worked();
  machine.locks = lines_of(probe.run(kLocks).text);
  const CommandOutput interfaces = probe.run(kInterfaces);
  if (interfaces.worked()) machine.interfaces = lines_of(interfaces.text);
  constexpr int kNotFound = 2;
  const CommandOutput name = probe.run(kOwnName);
  if (name.exit == kNotFound && !lines_of(name.text).empty()) {
    machine.unresolved_name = lines_of(name.text).front();
  }
  for (const std::string& line : lines_of(probe.run(kVariables).text)) {
    const std::size_t equals = line.find('=');
    if (equals != std::string::npos) {
      machine.environment.emplace_back(line.substr(0, equals), line.substr(equals + 1));
    }
  }
}

SshFailure ssh_failure(const std::string& said) {
  const auto any_of = [&](std::initializer_list<const char*> words) {
    return std::any_of(words.begin(), words.end(), [&](const char* one) {
      return said.find(one) != std::string::npos;
    });
  };
  if (any_of({"Could not resolve", "Name or service not known", "name resolution"})) {
    return SshFailure::no_address;
  }
  if (any_of({"Host key verification failed"})) return SshFailure::unknown_key;
  if (any_of({"Connection refused", "timed out", "No route to host", "unreachable"})) {
    return SshFailure::no_answer;
  }
  return SshFailure::no_login;
}

RemoteHost read_remote(Probe& probe, const std::string& name) {
  RemoteHost host{.name = name};
  const std::string ssh = "ssh -o BatchMode=yes -o ConnectTimeout=5 -- " + sh_quoted(name) + " ";
  const CommandOutput hello = probe.run(ssh + "true");
  host.reached = hello.worked();
  if (!host.reached) {
    const std::vector<std::string> lines = lines_of(hello.text);
    host.failure = lines.empty() ? "no answer" : lines.back();
    host.unreached = ssh_failure(host.failure);
    return host;
  }
  host.has_folder = probe.run(ssh + kHasFolder).worked();
  host.libraries = read_libraries(probe.run(ssh + sh_quoted(kPython)));
  return host;
}

// dd's last line: "1073741824 bytes (1.1 GB, 1.0 GiB) copied, 0.41 s, 2.6 GB/s"
std::optional<BytesPerSecond> rate_of(const std::string& text) {
  const std::vector<std::string> lines = lines_of(text);
  if (lines.empty()) return std::nullopt;
  const std::string& line = lines.back();
  const std::size_t bytes_end = line.find(" bytes");
  const std::size_t copied = line.find("copied, ");
  if (bytes_end == std::string::npos || copied == std::string::npos) return std::nullopt;
  const auto bytes = integer_of(line);
  const double seconds = std::strtod(line.c_str() + copied + 8, nullptr);
  if (!bytes || seconds <= 0.0) return std::nullopt;
  return BytesPerSecond::of(static_cast<double>(*bytes) / seconds);
}

NvmeState read_nvme(Probe& probe, const std::string& path, bool measure) {
  NvmeState state{.path = path};
  const CommandOutput source = probe.run("findmnt -no SOURCE -T " + sh_path(path));
  if (source.worked() && !lines_of(source.text).empty()) state.device = lines_of(source.text)[0];
  const std::vector<std::string> free =
      lines_of(probe.run("df -B1 --output=avail " + sh_path(path)).text);
  if (free.size() > 1) {
    if (const auto bytes = integer_of(free[1].substr(free[1].find_first_not_of(' ')))) {
      state.free = Bytes::of(*bytes);
    }
  }
  if (!measure) return state;
  // A name that nobody has, of a file that is ours: nothing that stands there is written to.
  const CommandOutput made = probe.run("mktemp " + sh_path(path + "/zeroplan_doctor.XXXXXXXX"));
  if (!made.worked() || lines_of(made.text).empty()) return state;
  const std::string file = sh_path(lines_of(made.text)[0]);
  state.write = rate_of(
      probe.run("dd if=/dev/zero of=" + file + " bs=16M count=64 oflag=direct conv=fsync").text);
  state.read = rate_of(probe.run("dd if=" + file + " of=/dev/null bs=16M iflag=direct").text);
  probe.run("rm -f " + file);
  return state;
}

}  // namespace

std::optional<std::string> MachineState::variable(std::string_view name) const {
  for (const auto& [key, value] : environment) {
    if (key == name) return value;
  }
  return std::nullopt;
}

MachineState look_at(Probe& probe, const Questions& questions) {
  MachineState machine;
  read_gpus(probe, machine);
  const CommandOutput nvcc =
      probe.run("${CUDA_HOME:-/usr/local/cuda}/bin/nvcc --version || nvcc --version");
  if (nvcc.worked()) machine.nvcc = word_after(nvcc.text, "release");
  machine.libraries = read_own_libraries(probe);
  read_host(probe, machine);
  for (const std::string& name : questions.hosts) machine.hosts.push_back(read_remote(probe, name));
  if (questions.nvme_path) {
    machine.nvme = read_nvme(probe, *questions.nvme_path, questions.measure_nvme);
  }
  return machine;
}

std::optional<Version> version_of(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  Version version;
  int* const parts[] = {&version.major, &version.minor, &version.patch};
  const char* at = text->data();
  const char* const end = at + text->size();
  for (int* part : parts) {
    const auto read = std::from_chars(at, end, *part);
    if (read.ec != std::errc()) break;
    at = read.ptr;
    if (at == end || *at != '.') break;
    ++at;
  }
  if (version == Version{}) return std::nullopt;
  return version;
}

}  // namespace zeroplan::cli
