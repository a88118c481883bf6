// Which rank of how many this process is, and where the ranks meet: read from the variables that
// launchers set. A pure function of the environment.
//
//   torchrun, `deepspeed --no_python`   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE
//   Open MPI's mpirun                   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   MPICH's, Intel's mpirun             PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS
//   srun                                SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID
// The innermost launcher counts: srun or mpirun may start one torchrun a node. MASTER_ADDR and
// MASTER_PORT say where to meet; what they leave open follows from the launcher.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.hpp"

namespace zeroplan::runtime {

inline constexpr int kMostProcesses = 4096;  // of a group

enum class Launcher { none, torchrun, openmpi, mpich, srun };
inline constexpr EnumNames<Launcher, 5> kLauncherNames{
    {"none", "torchrun", "Open MPI's mpirun", "MPICH's mpirun", "srun"}};

struct ProcessGroup {
  Launcher launcher = Launcher::none;
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;
  int local_ranks = 1;  // processes on this machine; all of them where the launcher does not say
  std::string host;     // where rank 0 listens; empty where nothing says it
  int port = 0;
  bool port_is_taken = false;  // by torchrun's own store: meet at one of the ports behind it
  std::string job;             // tells jobs of one machine apart; may be empty
  bool one_machine = false;    // the launcher says that all processes are on this one
};

// The value of a variable, where it is set.
using Environment = std::function<std::optional<std::string>(std::string_view name)>;

// Of this process.
Environment process_environment();

// Launcher::none where no launcher's variables are set. Throws InputError, `file` "environment" and
// the variable as pointer: half a pair, what is no number, a rank outside the group, launchers that
// contradict each other.
ProcessGroup process_group(const Environment& environment);

// The first host of a Slurm list: "node[03-05,9],login" -> "node03". Throws InputError.
std::string first_host(const std::string& node_list);

}  // namespace zeroplan::runtime
