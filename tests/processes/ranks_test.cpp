// `zeroplan run` as ranks of which one is not as the others: it has other flags or files, ends
// before it joined, stands still, or is killed. Strangers at every stage of the protocol are in
// tests/runtime/rendezvous_test.cpp.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>

#include "runtime/processes/socket.hpp"
#include "tests/catch.hpp"
#include "tests/free_port.hpp"
#include "tests/processes/job.hpp"

namespace zeroplan::test {
namespace {

using std::chrono::seconds;
using Words = std::vector<std::string>;
using Processes = std::vector<std::unique_ptr<Process>>;

// How long ranks may take to end that would otherwise wait for --join-timeout.
constexpr seconds kPrompt{60};

std::string model_of(const std::string& heads, const std::string& epsilon) {
  return R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": )" +
         heads + R"(, "num_key_value_heads": )" + heads +
         R"(, "vocab_size": 300, "max_position_embeddings": 64, "rms_norm_eps": )" + epsilon + "}";
}

std::string ds_config_of(const std::string& learning_rate) {
  return R"({"optimizer": {"type": "AdamW", "params": {"lr": )" + learning_rate +
         R"(}}, "zero_optimization": {"stage": 2, "reduce_bucket_size": 5000}})";
}

void write_files(const Folder& folder) {
  std::ofstream(folder / "model.json") << model_of("4", "1e-5");
  std::ofstream(folder / "heads.json") << model_of("8", "1e-5");
  std::ofstream(folder / "eps.json") << model_of("4", "1e-6");
  std::ofstream(folder / "ds.json") << ds_config_of("0.001");
  std::ofstream(folder / "lr.json") << ds_config_of("0.002");
  std::ofstream(folder / "text") << std::string(500, 'a');
  std::ofstream(folder / "other_text") << std::string(499, 'a') + "b";
}

// What every rank says, but for `from` which is `to`.
Words words_of(const Folder& folder, const std::string& from = "", const std::string& to = "") {
  Words words = {ZEROPLAN_PROGRAM,
                 "run",
                 folder / "model.json",
                 "--device",
                 "cpu",
                 "--precision",
                 "fp32",
                 "--ds-config",
                 folder / "ds.json",
                 "--data",
                 folder / "text",
                 "--seq",
                 "16",
                 "--mbs",
                 "1",
                 "--seed",
                 "0",
                 "--steps",
                 "3",
                 "--join-timeout",
                 "300"};
  for (std::string& word : words) {
    if (word == from || word == folder / from)
      word = to.ends_with("json") || to.ends_with("text") ? folder / to : to;
  }
  return words;
}

// Words and variables of each rank.
struct Start {
  Words words;
  Variables more;
};

Process& start_one(Processes& processes,
                   const Folder& folder,
                   const Start& start,
                   std::size_t rank,
                   std::size_t ranks,
                   int port) {
  Variables variables = {{"RANK", std::to_string(rank)},
                         {"WORLD_SIZE", std::to_string(ranks)},
                         {"LOCAL_RANK", std::to_string(rank)},
                         {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
                         {"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", std::to_string(port)}};
  variables.insert(start.more.begin(), start.more.end());
  const std::string output = folder / ("rank" + std::to_string(rank));
  processes.push_back(std::make_unique<Process>(start.words, variables, output));
  return *processes.back();
}

Processes start(const Folder& folder, const std::vector<Start>& starts) {
  Processes processes;
  const int port = free_port();
  for (std::size_t rank = 0; rank < starts.size(); ++rank) {
    start_one(processes, folder, starts[rank], rank, starts.size(), port);
  }
  return processes;
}

TEST_CASE("what one rank runs otherwise is named by all ranks, with the values") {
  struct Case {
    std::string from, to, message;
  };
  const Case one = GENERATE(
      Case{"ds.json", "lr.json", "optimizer.lr is 0.001 on rank 0, 2 and 0.002 on rank 1"},
      Case{"0", "7", "run.seed is 0 on rank 0, 2 and 7 on rank 1"},
      Case{"text", "other_text", "data.source is 500 bytes, CRC-32 "},
      Case{"16", "32", "workload./sequence_length is 16 on rank 0, 2 and 32 on rank 1"},
      Case{"1", "2", "workload./micro_batch_size is 1 on rank 0, 2 and 2 on rank 1"},
      Case{"model.json", "heads.json", "model.heads is 4 on rank 0, 2 and 8 on rank 1"},
      Case{
          "model.json", "eps.json", "model.norm_epsilon is 1e-05 on rank 0, 2 and 1e-06 on rank 1"},
      Case{"3", "4", "run.steps is 3 on rank 0, 2 and 4 on rank 1"});
  CAPTURE(one.from, one.to);
  const Folder folder;
  write_files(folder);
  const Start same{words_of(folder), {}};
  const Processes processes = start(folder, {same, {words_of(folder, one.from, one.to), {}}, same});
  for (const auto& process : processes) {
    CHECK(process->wait(kPrompt) == 1);
    INFO(process->err());
    CHECK(process->err().find("the ranks do not run the same: ") != std::string::npos);
    CHECK(process->err().find(one.message) != std::string::npos);
    CHECK(process->err().find("step 1") == std::string::npos);
  }
}

TEST_CASE("a rank that ends before it joined tells the others why") {
  struct Case {
    std::size_t rank;
    std::string from, to, message;
  };
  const Case one = GENERATE(
      Case{1, "--seed", "--sed", "--sed: expected a flag of zeroplan run"},
      Case{0, "--seed", "--sed", "--sed: expected a flag of zeroplan run"},
      Case{1, "16", "many", "--sequence-length: expected"},
      Case{2, "model.json", "missing.json", "missing.json: expected a readable file"},
      Case{1, "text", "missing_text", "--data: expected a readable file of text or tokens"});
  CAPTURE(one.rank, one.from, one.to);
  const Folder folder;
  write_files(folder);
  std::vector<Start> starts(4, Start{words_of(folder), {}});
  starts[one.rank].words = words_of(folder, one.from, one.to);
  const Processes processes = start(folder, starts);
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    CHECK(processes[rank]->wait(kPrompt) == (rank == one.rank ? 2 : 1));
    const std::string said = processes[rank]->err();
    INFO(said);
    CHECK(said.find(one.message) != std::string::npos);
    if (rank == one.rank) continue;
    CHECK(said.find("rank " + std::to_string(one.rank) + " failed: error: ") != std::string::npos);
  }
}

TEST_CASE("ranks that are all wrong end at once, each with its own error") {
  const Folder folder;
  write_files(folder);
  const Processes processes =
      start(folder, std::vector<Start>(3, Start{words_of(folder, "--seed", "--sed"), {}}));
  for (const auto& process : processes) {
    CHECK(process->wait(kPrompt) == 2);
    CHECK(process->err().find("did you mean --seed or --seq?") != std::string::npos);
  }
}

TEST_CASE("a rank 0 that stands still for seconds is waited for") {
  const Folder folder;
  write_files(folder);
  const Start same{words_of(folder), {}};
  const int port = free_port();
  Processes processes;
  Process& first = start_one(processes, folder, same, 0, 3, port);
  // As soon as it listens.
  REQUIRE(wait_until([&] {
    return static_cast<bool>(
        runtime::connect_to("127.0.0.1", port, std::chrono::steady_clock::now() + seconds(1)));
  }));
  first.kill(SIGSTOP);
  start_one(processes, folder, same, 1, 3, port);
  start_one(processes, folder, same, 2, 3, port);
  std::this_thread::sleep_for(seconds(4));
  first.kill(SIGCONT);
  for (const auto& process : processes) {
    CHECK(process->wait(kPrompt) == 0);
    INFO(process->err());
    CHECK((process.get() == &first || process->err().empty()));
  }
}

TEST_CASE("silent connections to rank 0's port do not end a job") {
  const Folder folder;
  write_files(folder);
  const Start same{words_of(folder), {}};
  const int port = free_port();
  Processes processes;
  start_one(processes, folder, same, 0, 3, port);
  std::vector<runtime::Descriptor> silent;
  REQUIRE(wait_until([&] {
    runtime::Descriptor one =
        runtime::connect_to("127.0.0.1", port, std::chrono::steady_clock::now() + seconds(1));
    if (one) silent.push_back(std::move(one));
    return silent.size() == 20;
  }));
  const linger at_once{1, 0};
  for (std::size_t i = 0; i < silent.size(); i += 2) {
    setsockopt(silent[i].number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    silent[i].reset();
  }
  start_one(processes, folder, same, 1, 3, port);
  start_one(processes, folder, same, 2, 3, port);
  for (const auto& process : processes) {
    CHECK(process->wait(kPrompt) == 0);
    INFO(process->err());
  }
}

TEST_CASE("ranks with the same secret train; one with another says so") {
  const Folder folder;
  write_files(folder);
  const Start same{words_of(folder), {{"ZEROPLAN_SECRET", "0123456789abcdef"}}};
  for (const auto& process : start(folder, {same, same, same})) CHECK(process->wait() == 0);
  Start other = same;
  other.more["ZEROPLAN_SECRET"] = "0123456789abcdee";
  Start none = same;
  none.more.clear();
  // Rank 0 goes on waiting for those that have the secret: whoever has not cannot end the job.
  const Processes processes = start(folder, {same, other, none});
  for (const std::size_t rank : {1U, 2U}) {
    CHECK(processes[rank]->wait(kPrompt) == 1);
    INFO(processes[rank]->err());
    CHECK(processes[rank]->err().find("has another secret than rank " + std::to_string(rank)) !=
          std::string::npos);
  }
  Start unreadable = none;
  unreadable.words.insert(unreadable.words.end(), {"--secret-file", folder / "missing"});
  const Processes refused = start(folder, {unreadable});
  CHECK(refused[0]->wait(kPrompt) == 2);
  CHECK(refused[0]->err().find("--secret-file: expected a readable file") != std::string::npos);
}

TEST_CASE(
    "a rank that is killed before it has called is waited for as long as --join-timeout says") {
  const Folder folder;
  write_files(folder);
  const Start brief{words_of(folder, "300", "2"), {}};
  const Start never{{"/bin/false"}, {}};
  const Processes processes = start(folder, {brief, brief, never});
  for (const std::size_t rank : {0U, 1U}) {
    CHECK(processes[rank]->wait(kPrompt) == 1);
    INFO(processes[rank]->err());
    CHECK(processes[rank]->err().find("rank 2 did not come to ") != std::string::npos);
    CHECK(processes[rank]->err().find(" in 2 s (--join-timeout)") != std::string::npos);
  }
  const Processes odd = start(folder, {{words_of(folder, "300", "0"), {}}});
  CHECK(odd[0]->wait(kPrompt) == 2);
  CHECK(odd[0]->err().find("--join-timeout: expected a number from 1.0 to 86400.0") !=
        std::string::npos);
}

TEST_CASE("a rank that is killed while others are missing ends those that come") {
  const Folder folder;
  write_files(folder);
  const Start same{words_of(folder), {}};
  const int port = free_port();
  Processes processes;
  start_one(processes, folder, same, 0, 4, port);
  Process& second = start_one(processes, folder, same, 1, 4, port);
  // Two sockets: where it listens, and its control connection, once it is there.
  REQUIRE(wait_until([&] {
    std::size_t sockets = 0;
    std::error_code error;
    const std::string numbers = "/proc/" + std::to_string(second.pid()) + "/fd";
    for (const auto& entry : std::filesystem::directory_iterator(numbers, error)) {
      const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
      sockets += target.starts_with("socket:") ? 1 : 0;
    }
    return sockets >= 2;
  }));
  std::this_thread::sleep_for(seconds(2));  // it takes milliseconds
  second.kill(SIGKILL);
  start_one(processes, folder, same, 2, 4, port);
  start_one(processes, folder, same, 3, 4, port);
  for (const std::size_t rank : {0U, 2U, 3U}) {
    CHECK(processes[rank]->wait(kPrompt) == 1);
    INFO(processes[rank]->err());
    CHECK(processes[rank]->err().find("rank 1 came and went before all were connected") !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace zeroplan::test
