// What launchers set, and what is read from it.
#include "runtime/processes/process_group.hpp"

#include <map>
#include <string>

#include "base/diagnostic.hpp"
#include "tests/catch.hpp"

namespace zeroplan::runtime {
namespace {

using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables& variables) {
  return [variables](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

ProcessGroup group_of(const Variables& variables) {
  return process_group(environment_of(variables));
}

struct Case {
  const char* what;
  Variables variables;
  ProcessGroup expected;
};

const Case kCases[] = {
    {"nothing: one process", {{"PATH", "/bin"}}, {}},
    {"a container's WORLD_SIZE alone", {{"WORLD_SIZE", "4"}, {"MASTER_ADDR", "head"}}, {}},
    {"torchrun --nnodes 2 --nproc-per-node 4",
     {{"RANK", "5"},
      {"WORLD_SIZE", "8"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "4"},
      {"MASTER_ADDR", "node0"},
      {"MASTER_PORT", "29400"},
      {"TORCHELASTIC_RUN_ID", "job7"},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
     {.launcher = Launcher::torchrun,
      .rank = 5,
      .ranks = 8,
      .local_rank = 1,
      .local_ranks = 4,
      .host = "node0",
      .port = 29400,
      .port_is_taken = true,
      .job = "job7"}},
    {"deepspeed --no_python on one machine",
     {{"RANK", "1"},
      {"WORLD_SIZE", "2"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_SIZE", "2"},
      {"CROSS_RANK", "0"},
      {"CROSS_SIZE", "1"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", "29500"}},
     {.launcher = Launcher::torchrun,
      .rank = 1,
      .ranks = 2,
      .local_rank = 1,
      .local_ranks = 2,
      .host = "127.0.0.1",
      .port = 29500}},
    {"Open MPI on one machine, with the variables of a meeting place",
     {{"OMPI_COMM_WORLD_RANK", "3"},
      {"OMPI_COMM_WORLD_SIZE", "4"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
      {"MASTER_PORT", "12345"}},
     {.launcher = Launcher::openmpi,
      .rank = 3,
      .ranks = 4,
      .local_rank = 3,
      .local_ranks = 4,
      .host = "127.0.0.1",
      .port = 12345}},
    {"Open MPI on two machines: MPI knows where, TCP would not",
     {{"OMPI_COMM_WORLD_RANK", "3"},
      {"OMPI_COMM_WORLD_SIZE", "4"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
      {"MASTER_PORT", "12345"}},
     {.launcher = Launcher::openmpi,
      .rank = 3,
      .ranks = 4,
      .local_rank = 1,
      .local_ranks = 2,
      .port = 12345}},
    {"MPICH",
     {{"PMI_RANK", "1"},
      {"PMI_SIZE", "2"},
      {"MPI_LOCALRANKID", "1"},
      {"MPI_LOCALNRANKS", "2"},
      {"MASTER_PORT", "12345"}},
     {.launcher = Launcher::mpich,
      .rank = 1,
      .ranks = 2,
      .local_rank = 1,
      .local_ranks = 2,
      .host = "127.0.0.1",
      .port = 12345}},
    {"srun",
     {{"SLURM_PROCID", "6"},
      {"SLURM_NTASKS", "8"},
      {"SLURM_STEP_NUM_TASKS", "8"},
      {"SLURM_LOCALID", "2"},
      {"SLURM_JOB_ID", "42"},
      {"SLURM_STEP_ID", "0"},
      {"SLURM_STEP_NODELIST", "gpu[08-09]"},
      {"MASTER_PORT", "12345"}},
     {.launcher = Launcher::srun,
      .rank = 6,
      .ranks = 8,
      .local_rank = 2,
      .local_ranks = 8,
      .host = "gpu08",
      .port = 12345,
      .job = "42.0"}},
    {"a batch script outside srun", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, {}},
    {"srun starts one torchrun a node: the inner one counts",
     {{"SLURM_PROCID", "1"},
      {"SLURM_STEP_NUM_TASKS", "2"},
      {"RANK", "5"},
      {"WORLD_SIZE", "8"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "4"},
      {"MASTER_ADDR", "node0"},
      {"MASTER_PORT", "29400"}},
     {.launcher = Launcher::torchrun,
      .rank = 5,
      .ranks = 8,
      .local_rank = 1,
      .local_ranks = 4,
      .host = "node0",
      .port = 29400}},
    {"mpirun under a batch script: its own ranks count",
     {{"SLURM_PROCID", "0"},
      {"SLURM_STEP_NUM_TASKS", "1"},
      {"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "node0"},
      {"MASTER_PORT", "7"}},
     {.launcher = Launcher::openmpi,
      .rank = 1,
      .ranks = 2,
      .local_rank = 1,
      .local_ranks = 2,
      .host = "node0",
      .port = 7}},
};

TEST_CASE("rank and meeting place follow from each launcher's variables") {
  for (const Case& one : kCases) {
    CAPTURE(one.what);
    const ProcessGroup group = group_of(one.variables);
    const ProcessGroup& expected = one.expected;
    CHECK(group.launcher == expected.launcher);
    CHECK(group.rank == expected.rank);
    CHECK(group.ranks == expected.ranks);
    CHECK(group.local_rank == expected.local_rank);
    CHECK(group.local_ranks == expected.local_ranks);
    CHECK(group.host == expected.host);
    CHECK(group.port == expected.port);
    CHECK(group.port_is_taken == expected.port_is_taken);
    CHECK(group.job == expected.job);
  }
}

std::string refusal_of(const Variables& variables) {
  try {
    group_of(variables);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("variables that contradict each other are refused by name") {
  CHECK(refusal_of({{"RANK", "0"}}) ==
        "error: environment: WORLD_SIZE: expected RANK and WORLD_SIZE together, got nothing");
  CHECK(refusal_of({{"LOCAL_RANK", "0"}, {"WORLD_SIZE", "2"}}) ==
        "error: environment: RANK: expected RANK and WORLD_SIZE together, got nothing");
  CHECK(refusal_of({{"RANK", "4"}, {"WORLD_SIZE", "4"}}) ==
        "error: environment: RANK: expected a rank below WORLD_SIZE (4), got 4");
  CHECK(refusal_of({{"RANK", "one"}, {"WORLD_SIZE", "4"}}) ==
        "error: environment: RANK: expected a whole number from 0 to 4095, got \"one\"");
  CHECK(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "99999"}}) ==
        "error: environment: MASTER_PORT: expected a whole number from 1 to 65535, got \"99999\"");
  CHECK(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}}) ==
        "error: environment: MASTER_ADDR: expected the host of rank 0: the ranks are on several "
        "machines, got nothing");
  // Each of the four would be alone, and all would write the same checkpoint.
  CHECK(refusal_of({{"RANK", "0"},
                    {"WORLD_SIZE", "1"},
                    {"OMPI_COMM_WORLD_RANK", "2"},
                    {"OMPI_COMM_WORLD_SIZE", "4"}}) ==
        "error: environment: RANK: expected 2 of 4, as Open MPI's mpirun says, got 0 of 1\n"
        "hint: unset RANK WORLD_SIZE: mpirun sets what is needed");
}

TEST_CASE("jobs without a port of their own get one each") {
  const auto port_of = [](const char* job) {
    return group_of({{"SLURM_PROCID", "0"},
                     {"SLURM_STEP_NUM_TASKS", "2"},
                     {"SLURM_JOB_ID", job},
                     {"SLURM_STEP_NODELIST", "a,b"}})
        .port;
  };
  CHECK(port_of("1") == port_of("1"));
  CHECK(port_of("1") != port_of("2"));
  CHECK(port_of("1") >= 15000);
  CHECK(port_of("1") < 25000);
}

TEST_CASE("the first host of a Slurm list") {
  CHECK(first_host("node7") == "node7");
  CHECK(first_host("node7,node8") == "node7");
  CHECK(first_host("node[03-05,9],login") == "node03");
  CHECK(first_host("rack[2,4]n[10-12]-ib,x") == "rack2n10-ib");
  for (const char* broken : {"", "node[", "node[]", ",a"}) {
    CAPTURE(broken);
    CHECK_THROWS_AS(first_host(broken), InputError);
  }
}

TEST_CASE("a group is on one machine where its launcher says so, not where it is silent") {
  const auto torch = [](const std::string& local) {
    return group_of({{"RANK", "1"},
                     {"WORLD_SIZE", "4"},
                     {"LOCAL_RANK", "1"},
                     {"LOCAL_WORLD_SIZE", local},
                     {"MASTER_ADDR", "node0"}});
  };
  CHECK(torch("4").one_machine);
  CHECK_FALSE(torch("2").one_machine);
  CHECK_FALSE(
      group_of({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node0"}, {"LOCAL_RANK", "1"}})
          .one_machine);
  const auto srun = [](const std::string& nodes) {
    return group_of({{"SLURM_PROCID", "1"},
                     {"SLURM_STEP_NUM_TASKS", "4"},
                     {"SLURM_STEP_NODELIST", "node[1-2]"},
                     {"SLURM_STEP_NUM_NODES", nodes}});
  };
  CHECK(srun("1").one_machine);
  CHECK_FALSE(srun("2").one_machine);
  CHECK_FALSE(srun("").one_machine);
  CHECK(group_of({{"OMPI_COMM_WORLD_RANK", "0"},
                  {"OMPI_COMM_WORLD_SIZE", "2"},
                  {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})
            .one_machine);
}

}  // namespace
}  // namespace zeroplan::runtime
