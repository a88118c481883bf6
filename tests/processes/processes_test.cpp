// `zeroplan run` as processes that launchers start: the same losses as in-process ranks, and what
// happens when one of them ends.
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/json.hpp"
#include "runtime/processes/mpi_links.hpp"
#include "tests/catch.hpp"
#include "tests/processes/job.hpp"

namespace zeroplan::test {
namespace {

using std::chrono::seconds;

constexpr const char* kProgram = ZEROPLAN_PROGRAM;
constexpr const char* kModel = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 4, "vocab_size": 64, "max_position_embeddings": 64, "hidden_act": "silu",
  "rms_norm_eps": 1e-5, "tie_word_embeddings": false})";

// What one run is: a tiny LLaMA in fp32 under a stage, `micro_batch` rows a rank and step.
std::vector<std::string> command_of(const Folder& folder,
                                    int stage,
                                    int micro_batch,
                                    const std::vector<std::string>& more,
                                    const std::string& knobs = "") {
  std::ofstream(folder / "model.json") << kModel;
  std::ofstream(folder / "ds.json")
      << R"({"zero_optimization": {"reduce_bucket_size": 5000, "stage": )" << stage << knobs
      << "}}";
  std::vector<std::string> command = {kProgram, "run", folder / "model.json", "--device", "cpu"};
  for (const std::string& word : {std::string("--ds-config"),
                                  folder / "ds.json",
                                  std::string("--precision"),
                                  std::string("fp32"),
                                  std::string("--seq"),
                                  std::string("16"),
                                  std::string("--mbs"),
                                  std::to_string(micro_batch),
                                  std::string("--json")}) {
    command.push_back(word);
  }
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

std::vector<double> losses_of(const std::string& document) {
  std::vector<double> losses;
  const Json root = parse_json(document, "standard output").root;
  for (const Json& loss : root.find("losses")->items()) losses.push_back(loss.as_number());
  return losses;
}

// Of ranks that are threads.
std::vector<double> by_threads(const Folder& folder, int ranks, std::vector<std::string> command) {
  command.insert(command.end(), {"--ranks", std::to_string(ranks)});
  Process process(command, {}, folder / "threads");
  INFO(process.err());
  REQUIRE(process.wait() == 0);
  return losses_of(process.out());
}

std::vector<double> by_processes(const Folder& folder,
                                 int ranks,
                                 const std::vector<std::string>& command) {
  const auto processes = torchrun(ranks, command, folder);
  for (const auto& process : processes) {
    const std::optional<int> code = process->wait();
    INFO(process->err());
    REQUIRE(code == 0);
  }
  for (std::size_t r = 1; r < processes.size(); ++r) {
    CHECK(processes[r]->out().empty());
    CHECK(processes[r]->err().empty());
  }
  return losses_of(processes[0]->out());
}

std::vector<double> in_process(const Folder& folder,
                               int ranks,
                               int stage,
                               int micro_batch,
                               const std::vector<std::string>& more) {
  return by_threads(folder, ranks, command_of(folder, stage, micro_batch, more));
}

std::vector<double> as_processes(const Folder& folder,
                                 int ranks,
                                 int stage,
                                 int micro_batch,
                                 const std::vector<std::string>& more) {
  return by_processes(folder, ranks, command_of(folder, stage, micro_batch, more));
}

TEST_CASE("four processes with torchrun's variables train as four threads do, to the bit") {
  const int stage = GENERATE(0, 1, 2, 3);
  const Folder folder;
  const std::vector<double> expected = in_process(folder, 4, stage, 1, {"--steps", "4"});
  CHECK(as_processes(folder, 4, stage, 1, {"--steps", "4"}) == expected);
  CHECK(expected.size() == 4);
}

TEST_CASE("groups of processes train as groups of threads do, to the bit") {
  const std::string knobs = GENERATE(R"(, "zero_hpz_partition_size": 2)",
                                     R"(, "mics_shard_size": 2, "overlap_comm": true)");
  CAPTURE(knobs);
  const Folder folder;
  const std::vector<std::string> command = command_of(folder, 3, 1, {"--steps", "4"}, knobs);
  const std::vector<double> expected = by_threads(folder, 4, command);
  CHECK(by_processes(folder, 4, command) == expected);
  const std::vector<double> without = in_process(folder, 4, 3, 1, {"--steps", "4"});
  REQUIRE(expected.size() == 4);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(std::abs(expected[i] / without[i] - 1.0) < 1e-6);
  }
  std::vector<std::string> verify = command_of(folder, 3, 1, {"--steps", "3"}, knobs);
  verify[1] = "verify";
  const auto processes = torchrun(4, verify, folder);
  for (const auto& process : processes) CHECK(process->wait() == 0);
  const Json root = parse_json(processes[0]->out(), "standard output").root;
  CHECK(root.find("memory_error")->as_number() < 0.01);
}

TEST_CASE("processes with states and weights on a drive train as threads do, to the bit") {
  // Partitions of the embeddings have more than 1 MiB on two ranks: smaller ones are not swapped.
  constexpr const char* kWide = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 256, "intermediate_size": 1028, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4201,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5})";
  const Folder folder;
  const std::string drive = folder / "drive";
  std::filesystem::create_directory(drive);
  const std::string section = R"({"device": "nvme", "nvme_path": ")" + drive + R"(")";
  const std::string swapped = R"(, "sub_group_size": 400000, "offload_optimizer": )" + section +
                              R"(, "buffer_count": 11, "pipeline_read": true}, "offload_param": )" +
                              section + R"(, "buffer_size": 1100000, "max_in_cpu": 0})";
  const std::string on_host = R"(, "sub_group_size": 400000, "offload_optimizer": {"device": "cpu"},
                              "offload_param": {"device": "cpu"})";
  const auto command = [&](const std::string& knobs) {
    auto words = command_of(folder, 3, 2, {"--steps", "3"}, knobs);
    std::ofstream(folder / "model.json") << kWide;
    return words;
  };
  const std::vector<double> host = by_threads(folder, 2, command(on_host));
  const std::vector<double> threads = by_threads(folder, 2, command(swapped));
  CHECK(by_processes(folder, 2, command(swapped)) == threads);
  CHECK(threads == host);
  REQUIRE(threads.size() == 3);
  CHECK(threads[2] < threads[0]);
  CHECK(std::filesystem::is_empty(drive));
  // Something was there: both ranks' states and weights.
  const Json verified = parse_json(read_text(folder / "threads"), "standard output").root;
  REQUIRE(verified.find("drive_bytes") != nullptr);
  CHECK(verified.find("drive_bytes")->as_number() > 2e6);
}

TEST_CASE("verify holds under torchrun's variables too") {
  const Folder folder;
  std::vector<std::string> command = command_of(folder, 3, 1, {"--steps", "3"});
  command[1] = "verify";
  const auto processes = torchrun(4, command, folder);
  for (const auto& process : processes) CHECK(process->wait() == 0);
  const Json root = parse_json(processes[0]->out(), "standard output").root;
  CHECK(root.find("memory_error")->as_number() == 0.0);
}

// mpirun as root on few cores (Open MPI 4).
const Variables kOpenMpi = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                            {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                            {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                            {"OMPI_MCA_btl_base_warn_component_unused", "0"},
                            // Under sanitizers: what Open MPI's plugins leave behind when they are
                            // unloaded, and how they take their locks, is not ours.
                            {"ASAN_OPTIONS", "detect_leaks=0"},
                            {"TSAN_OPTIONS", "ignore_noninstrumented_modules=1"}};

bool has_mpirun() {
  const bool there = std::system("mpirun --version >/dev/null 2>&1") == 0;
  if (!there) WARN("SKIPPED: no mpirun here (Debian: openmpi-bin); nothing ran under MPI");
  return there;
}

std::vector<std::string> under_mpirun(const std::vector<std::string>& command) {
  std::vector<std::string> words = {"mpirun", "-np", "4"};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

TEST_CASE("four processes under mpirun train as four threads do, over MPI and over TCP") {
  if (!has_mpirun()) return;
  for (const std::string collectives : {"mpi", "tcp"}) {
    if (collectives == "mpi" && !runtime::built_with_mpi()) {
      WARN("SKIPPED: built without MPI (Debian: libopenmpi-dev)");
      continue;
    }
    const Folder folder;
    const int stage = 3;
    const std::vector<double> expected = in_process(folder, 4, stage, 1, {"--steps", "4"});
    Process job(
        under_mpirun(command_of(folder, stage, 1, {"--steps", "4", "--collectives", collectives})),
        kOpenMpi,
        folder / "mpirun");
    const std::optional<int> code = job.wait();
    INFO(job.err());
    REQUIRE(code == 0);
    // One document: nobody but rank 0 prints.
    CHECK(losses_of(job.out()) == expected);
  }
}

TEST_CASE("a rank's failure under mpirun reaches the others with its reason") {
  if (!has_mpirun()) return;
  const Folder folder;
  Process job(under_mpirun(command_of(folder, 3, 1, {"--steps", "4", "--device-memory", "65536"})),
              kOpenMpi,
              folder / "mpirun");
  const std::optional<int> code = job.wait(seconds(30));
  INFO(job.err());
  REQUIRE(code.has_value());
  CHECK(*code != 0);
  CHECK(job.err().find("out of device memory in phase") != std::string::npos);
}

TEST_CASE("a killed rank ends the others within 30 s, and they say which") {
  const int victim = GENERATE(0, 2);
  const Folder folder;
  const auto processes = torchrun(4, command_of(folder, 2, 1, {"--steps", "1000000"}), folder);
  REQUIRE(wait_for_text(folder / "rank0.err", "step 3: loss"));
  const auto killed = std::chrono::steady_clock::now();
  processes[static_cast<std::size_t>(victim)]->kill(SIGKILL);
  for (int rank = 0; rank < 4; ++rank) {
    Process& process = *processes[static_cast<std::size_t>(rank)];
    const std::optional<int> code = process.wait(seconds(30));
    CHECK(code == (rank == victim ? 128 + SIGKILL : 1));
    if (rank == victim) continue;
    INFO(process.err());
    CHECK(process.err().find("error: training: rank " + std::to_string(victim) +
                             " is gone: its connection closed without a word") !=
          std::string::npos);
  }
  CHECK(std::chrono::steady_clock::now() - killed < seconds(30));
}

TEST_CASE("a rank that stops without ending is given up within 30 s") {
  const Folder folder;
  const auto processes = torchrun(3, command_of(folder, 3, 1, {"--steps", "1000000"}), folder);
  REQUIRE(wait_for_text(folder / "rank0.err", "step 3: loss"));
  processes[1]->kill(SIGSTOP);
  for (const std::size_t rank : {0U, 2U}) {
    CHECK(processes[rank]->wait(seconds(30)) == 1);
    INFO(processes[rank]->err());
    CHECK(processes[rank]->err().find("rank 1 has not been heard of for 12 s") !=
          std::string::npos);
  }
}

TEST_CASE("a file that is missing is told by every process that misses it") {
  const Folder folder;
  const std::vector<std::string> command =
      command_of(folder, 3, 1, {"--steps", "2", "--weights", folder / "missing.safetensors"});
  const auto processes = torchrun(3, command, folder);
  for (const auto& process : processes) {
    CHECK(process->wait(seconds(30)) == 2);
    CHECK(process->err().find("missing.safetensors: expected a safetensors file") !=
          std::string::npos);
  }
}

TEST_CASE("--ranks that contradict the launcher are refused") {
  const Folder folder;
  const auto processes = torchrun(2, command_of(folder, 3, 1, {"--ranks", "3"}), folder);
  for (const auto& process : processes) CHECK(process->wait() == 2);
  CHECK(processes[0]->err().find("--ranks: expected 2, as many as torchrun started, got 3") !=
        std::string::npos);
}

TEST_CASE("a run goes on from 4 processes to 2 to 1 on the same curve") {
  const Folder folder;
  const std::vector<double> whole = in_process(folder, 1, 0, 4, {"--steps", "6"});
  std::vector<double> parts;
  const std::string checkpoint = folder / "checkpoint";
  const auto add = [&](const std::vector<double>& losses) {
    parts.insert(parts.end(), losses.begin(), losses.end());
  };
  add(as_processes(folder, 4, 3, 1, {"--steps", "2", "--save", checkpoint}));
  add(as_processes(
      folder, 2, 2, 2, {"--steps", "2", "--resume", checkpoint, "--save", checkpoint}));
  add(in_process(folder, 1, 3, 4, {"--steps", "2", "--resume", checkpoint}));
  REQUIRE(parts.size() == whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) CHECK(std::abs(parts[i] / whole[i] - 1.0) < 1e-6);
}

// A run that saves every step and keeps two is killed, `rounds` times, and goes on.
void kill_and_go_on(int rounds) {
  const Folder folder;
  const std::string checkpoint = folder / "checkpoint";
  // -1 where a pointer is followed that has just moved on: what it named is too many now.
  const auto steps_of = [&] {
    std::string tag = read_text(checkpoint + "/latest");
    if (tag.ends_with('\n')) tag.pop_back();
    const std::string text = read_text(checkpoint + "/" + tag + "/state.json");
    return text.empty() ? -1.0 : parse_json(text, "state.json").root.find("steps")->as_number();
  };
  const auto in_the_making = [&] {
    std::error_code error;
    std::filesystem::directory_iterator at(checkpoint, error);
    for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
      if (at->path().filename().string().starts_with(".zeroplan-saving.")) return true;
    }
    return false;
  };
  in_process(folder, 1, 1, 2, {"--steps", "1", "--save", checkpoint});
  double steps = steps_of();
  const double first = steps;
  int while_writing = 0;
  for (int attempt = 0; attempt < rounds; ++attempt) {
    std::vector<std::string> words = {"--steps", "1000000", "--save-every", "1", "--keep", "2"};
    words.insert(words.end(), {"--save", checkpoint, "--resume", checkpoint});
    Process process(command_of(folder, 1, 2, words), {}, folder / "killed");
    // After it has written twice: at any moment, and every other time while one is written.
    REQUIRE(wait_until([&] { return steps_of() >= steps + 2; }));
    std::this_thread::sleep_for(std::chrono::microseconds(350 * (attempt % 12)));
    if (attempt % 2 == 1) {
      const auto deadline = std::chrono::steady_clock::now() + seconds(60);
      while (!in_the_making() && std::chrono::steady_clock::now() < deadline) {
      }
    }
    process.kill(SIGKILL);
    process.wait();
    INFO(process.err());
    while_writing += in_the_making() ? 1 : 0;
    REQUIRE(steps_of() >= steps);
    steps = steps_of();
  }
  CHECK(steps > first);
  CHECK(while_writing > 0);
  in_process(folder, 2, 3, 1, {"--steps", "1", "--resume", checkpoint});
}

TEST_CASE("killed at any moment of writing a checkpoint, a whole one is there") {
  kill_and_go_on(12);
}

TEST_CASE("killed a hundred times, a whole one is there", "[.][long]") { kill_and_go_on(100); }

TEST_CASE("a folder that is somebody else's is refused before it trains, and stays as it is") {
  const Folder folder;
  const std::string source = folder / "source";
  std::filesystem::create_directories(source + "/deep");
  std::ofstream(source + "/main.py") << "print()";
  Process process(command_of(folder, 1, 2, {"--steps", "1", "--save", source}), {}, folder / "out");
  CHECK(process.wait() == 2);
  CHECK(process.err().find("error: " + source + ": expected an empty folder") != std::string::npos);
  CHECK(process.err().find("got a folder that holds") != std::string::npos);
  CHECK(process.err().find("step 1") == std::string::npos);
  CHECK(read_text(source + "/main.py") == "print()");
  CHECK(std::filesystem::exists(source + "/deep"));
}

TEST_CASE("a run saves into the folder that a symbolic link names") {
  const Folder folder;
  std::filesystem::create_directory(folder / "drive");
  std::filesystem::create_directory_symlink(folder / "drive", folder / "link");
  in_process(folder, 1, 1, 2, {"--steps", "1", "--save", folder / "link"});
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(read_text(folder / "drive/latest") == "global_step1\n");
  in_process(folder, 1, 1, 2, {"--steps", "1", "--resume", folder / "drive/global_step1"});
}

TEST_CASE(
    "a run that would go on with something else is told what, and goes on where that is meant") {
  const Folder folder;
  const std::string checkpoint = folder / "checkpoint";
  std::ofstream(folder / "a.txt") << std::string(4000, ' ') << "123";
  std::ofstream(folder / "b.txt") << std::string(4000, ' ') << "124";
  in_process(folder, 1, 1, 2, {"--steps", "1", "--data", folder / "a.txt", "--save", checkpoint});
  const auto refusal = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"--steps", "1", "--resume", checkpoint};
    words.insert(words.end(), more.begin(), more.end());
    Process process(command_of(folder, 1, 2, words), {}, folder / "refused");
    CHECK(process.wait() == 2);
    return process.err();
  };
  const std::string data = refusal({"--data", folder / "b.txt"});
  CHECK(data.find("--resume " + checkpoint + ": data.source: expected 4003 bytes, CRC-32 ") !=
        std::string::npos);
  CHECK(data.find("hint: --allow-changes goes on all the same, as another run") !=
        std::string::npos);
  CHECK(refusal({}).find("data.source: expected 4003 bytes") != std::string::npos);
  CHECK(refusal({"--data", folder / "a.txt", "--gas", "2"})
            .find("batch.sequences_a_step: expected ") != std::string::npos);
  // A copy of the data elsewhere is the same data; its seed decides about nothing.
  std::filesystem::copy(folder / "a.txt", folder / "copy.txt");
  in_process(
      folder,
      2,
      1,
      1,
      {"--steps", "1", "--resume", checkpoint, "--data", folder / "copy.txt", "--seed", "9"});
  in_process(
      folder,
      1,
      1,
      2,
      {"--steps", "1", "--resume", checkpoint, "--data", folder / "b.txt", "--allow-changes"});
}

TEST_CASE("two runs into one folder: the second is refused before it trains") {
  const Folder folder;
  const std::string checkpoint = folder / "checkpoint";
  Process first(
      command_of(folder,
                 1,
                 2,
                 {"--steps", "1000000", "--save-every", "1", "--keep", "1", "--save", checkpoint}),
      {},
      folder / "first");
  REQUIRE(wait_until([&] { return std::filesystem::exists(checkpoint + "/latest"); }));
  Process second(
      command_of(folder, 1, 2, {"--steps", "1", "--save", checkpoint}), {}, folder / "second");
  CHECK(second.wait() == 2);
  CHECK(second.err().find("got one that another run has locked") != std::string::npos);
  first.kill(SIGKILL);
  first.wait();
  // The lock goes with its process.
  in_process(folder, 1, 1, 2, {"--steps", "1", "--save", checkpoint});
}

TEST_CASE(
    "a full disk ends all processes with the file and the reason; the checkpoint before stays") {
  const Folder folder;
  const std::string checkpoint = folder / "checkpoint";
  in_process(folder, 1, 1, 2, {"--steps", "1", "--save", checkpoint});
  Process process(
      command_of(folder, 1, 2, {"--steps", "1", "--save", checkpoint, "--resume", checkpoint}),
      {},
      folder / "full",
      20'000);
  CHECK(process.wait() == 1);
  CHECK(process.err().find("error: training: cannot write " + checkpoint + "/.zeroplan-saving.") !=
        std::string::npos);
  CHECK(process.err().find("/model.safetensors: File too large") != std::string::npos);
  in_process(folder, 2, 1, 1, {"--steps", "1", "--resume", checkpoint});
}

}  // namespace
}  // namespace zeroplan::test
