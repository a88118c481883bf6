#include "runtime/processes/process_group.hpp"

#include <charconv>
#include <cstdint>
#include <cstdlib>

#include <fmt/format.h>

#include "base/diagnostic.hpp"

namespace zeroplan::runtime {
namespace {

constexpr int kTorchPort = 29500;  // of torch.distributed and DeepSpeed where nothing is said

[[noreturn]] void refuse(std::string_view variable, Phrase expected, Phrase got, Phrase hint = "") {
  throw InputError(Diagnostic{.file = "environment",
                              .pointer = std::string(variable),
                              .expected = std::move(expected),
                              .got = std::move(got),
                              .hint = std::move(hint)});
}

// Names of one launcher's variables.
struct Names {
  Launcher launcher;
  std::string_view rank, ranks, local_rank, local_ranks;
};

constexpr Names kNames[] = {
    {Launcher::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {Launcher::openmpi,
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {Launcher::mpich, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    // In a batch script outside srun SLURM_PROCID is 0 and SLURM_NTASKS the job's: only a step has
    // ranks. Source: srun's manual, output environment variables.
    {Launcher::srun, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""},
};

class AnswerReader {
 public:
  explicit AnswerReader(const Environment& environment) : environment_(environment) {}

  std::string text(std::string_view name) const {
    return name.empty() ? "" : environment_(name).value_or("");
  }
  bool has(std::string_view name) const { return !text(name).empty(); }

  std::optional<int> number(std::string_view name, int least, int most) const {
    const std::string said = text(name);
    if (said.empty()) return std::nullopt;
    int value = 0;
    const char* end = said.data() + said.size();
    const auto [stop, error] = std::from_chars(said.data(), end, value);
    if (error != std::errc() || stop != end || value < least || value > most) {
      refuse(name, fmt::format("a whole number from {} to {}", least, most), in_quotes(said));
    }
    return value;
  }

  // Rank and number of ranks; nothing where neither is set.
  std::optional<ProcessGroup> group(const Names& names) const {
    if (!has(names.rank) && !has(names.ranks)) return std::nullopt;
    // Containers leave WORLD_SIZE without RANK behind, batch scripts SLURM_PROCID without a step.
    const auto ranks = number(names.ranks, 1, kMostProcesses);
    const bool srun = names.launcher == Launcher::srun;
    if (!ranks && srun) return std::nullopt;
    if (!ranks) refuse(names.ranks, pair(names), "nothing");
    const auto rank = number(names.rank, 0, kMostProcesses - 1);
    if (!rank) refuse(names.rank, pair(names), "nothing");
    if (*rank >= *ranks) {
      refuse(names.rank,
             fmt::format("a rank below {} ({})", names.ranks, *ranks),
             std::to_string(*rank));
    }
    ProcessGroup group{.launcher = names.launcher, .rank = *rank, .ranks = *ranks};
    auto local_ranks = number(names.local_ranks, 1, *ranks);
    // deepspeed/launcher/launch.py calls it so.
    const bool torch = names.launcher == Launcher::torchrun;
    if (torch && !local_ranks) local_ranks = number("LOCAL_SIZE", 1, *ranks);
    group.local_ranks = local_ranks.value_or(*ranks);
    // Source: srun's manual, output environment variables.
    const bool one_node = srun && number("SLURM_STEP_NUM_NODES", 1, kMostProcesses) == 1;
    group.one_machine = local_ranks == *ranks || one_node;
    group.local_rank = number(names.local_rank, 0, *ranks - 1).value_or(group.rank);
    return group;
  }

 private:
  static std::string pair(const Names& names) {
    return fmt::format("{} and {} together", names.rank, names.ranks);
  }

  const Environment& environment_;
};

// RANK and WORLD_SIZE that a container or a shell left behind would make every process of an mpirun
// a job of its own, all writing the same checkpoint. torchrun under mpirun says who it is.
void refuse_leftovers(const AnswerReader& reader,
                      const ProcessGroup& torch,
                      const ProcessGroup& mpi) {
  if (torch.rank == mpi.rank && torch.ranks == mpi.ranks) return;
  if (reader.has("TORCHELASTIC_RUN_ID") || reader.has("LOCAL_RANK")) return;
  refuse("RANK",
         phrase("{} of {}, as {} says", mpi.rank, mpi.ranks, name(kLauncherNames, mpi.launcher)),
         fmt::format("{} of {}", torch.rank, torch.ranks),
         "unset RANK WORLD_SIZE: mpirun sets what is needed");
}

// A port that follows from the job, so that two jobs on a machine do not meet.
int port_of_job(const std::string& job) {
  if (job.empty()) return kTorchPort;
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  constexpr std::uint32_t kFirst = 15000, kCount = 10000;  // below Linux's ephemeral ports
  return static_cast<int>(kFirst + hash % kCount);
}

void find_meeting_place(const AnswerReader& reader, ProcessGroup& group) {
  if (group.launcher == Launcher::torchrun) group.job = reader.text("TORCHELASTIC_RUN_ID");
  if (group.launcher == Launcher::openmpi) group.job = reader.text("PMIX_NAMESPACE");
  if (group.launcher == Launcher::mpich) group.job = reader.text("PMI_JOBID");
  if (group.launcher == Launcher::srun) {
    group.job = reader.text("SLURM_JOB_ID") + "." + reader.text("SLURM_STEP_ID");
  }
  group.host = reader.text("MASTER_ADDR");
  group.port =
      reader.number("MASTER_PORT", 1, 65535)
          .value_or(group.launcher == Launcher::torchrun ? kTorchPort : port_of_job(group.job));
  // The agent's TCPStore listens there: torch/distributed/elastic/agent/server/local_elastic_agent.
  const std::string store = reader.text("TORCHELASTIC_USE_AGENT_STORE");
  group.port_is_taken = store == "True" || store == "1";
  if (!group.host.empty()) return;
  if (group.launcher == Launcher::srun) {
    const std::string hosts = reader.text("SLURM_STEP_NODELIST");
    if (!hosts.empty()) group.host = first_host(hosts);
  } else if (group.launcher == Launcher::torchrun || group.local_ranks == group.ranks) {
    if (group.local_ranks != group.ranks) {
      refuse("MASTER_ADDR", "the host of rank 0: the ranks are on several machines", "nothing");
    }
    group.host = "127.0.0.1";
  }
}

}  // namespace

Environment process_environment() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

ProcessGroup process_group(const Environment& environment) {
  const AnswerReader reader(environment);
  std::optional<ProcessGroup> inner;
  for (const Names& names : kNames) {
    // WORLD_SIZE alone is set by containers; RANK alone, or with a size, is meant.
    if (names.launcher == Launcher::torchrun && !reader.has("RANK") && !reader.has("LOCAL_RANK")) {
      continue;
    }
    const std::optional<ProcessGroup> found = reader.group(names);
    if (!found) continue;
    const bool mpi = names.launcher == Launcher::openmpi || names.launcher == Launcher::mpich;
    if (inner && mpi && inner->launcher == Launcher::torchrun) {
      refuse_leftovers(reader, *inner, *found);
    }
    if (!inner) inner = found;
  }
  if (!inner) return {};
  find_meeting_place(reader, *inner);
  return *inner;
}

std::string first_host(const std::string& node_list) {
  const auto wrong = [&](const std::string& why) {
    refuse("SLURM_STEP_NODELIST", "a list of hosts: node[01-04],login", why);
  };
  std::string host;
  std::size_t at = 0;
  while (at < node_list.size() && node_list[at] != ',') {
    if (node_list[at] != '[') {
      host += node_list[at++];
      continue;
    }
    // The first of a list of numbers and ranges, with its leading zeros.
    const std::size_t close = node_list.find(']', at);
    const std::size_t end = node_list.find_first_of(",-]", at);
    if (close == std::string::npos || end == at + 1) wrong(in_quotes(node_list));
    host += node_list.substr(at + 1, end - at - 1);
    at = close + 1;
  }
  if (host.empty()) wrong(in_quotes(node_list));
  return host;
}

}  // namespace zeroplan::runtime
