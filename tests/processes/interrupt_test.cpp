// SIGINT and SIGTERM: every command ends with 130 or 143 and says so; training stops for all ranks
// behind the same step.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "tests/catch.hpp"
#include "tests/processes/job.hpp"
#include "tests/processes/pipe.hpp"

namespace zeroplan::test {
namespace {

constexpr const char* kProgram = ZEROPLAN_PROGRAM;
constexpr const char* kModel = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 4, "vocab_size": 64, "max_position_embeddings": 64, "rms_norm_eps": 1e-5})";

void check_said(const Process& process, int signal) {
  CHECK(process.err().ends_with(signal == SIGINT ? "interrupted (SIGINT)\n"
                                                 : "interrupted (SIGTERM)\n"));
}

// A training that nobody waits for the end of.
std::vector<std::string> training(const Folder& folder, const std::vector<std::string>& more) {
  std::ofstream(folder / "model.json") << kModel;
  std::vector<std::string> command = {kProgram,
                                      "run",
                                      folder / "model.json",
                                      "--device",
                                      "cpu",
                                      "--seq",
                                      "16",
                                      "--json",
                                      "--lang",
                                      "en",
                                      "--steps"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

std::vector<double> losses_of(const std::string& document) {
  std::vector<double> losses;
  const Json root = parse_json(document, "standard output").root;
  for (const Json& loss : root.find("losses")->items()) losses.push_back(loss.as_number());
  return losses;
}

TEST_CASE("a command that has nothing to keep ends at once, with 130 or 143, and says so") {
  const int signal = GENERATE(SIGINT, SIGTERM);
  const Folder folder;
  Pipe pipe(folder / "never");  // what each command waits for
  const std::vector<std::vector<std::string>> commands = {
      {"validate", pipe.path()},
      {"calibrate", pipe.path(), "-o", folder / "profile.json"},
      {"import", pipe.path(), "-o", folder / "measurements.jsonl"},
      {"replay", pipe.path()},
      {"explain", pipe.path()},
      {"lint", pipe.path()},
      {"fit", "7B", "8xA100-80G", "--ds-config", pipe.path(), "-o", folder / "plan"},
      {"simulate", "--scenario", pipe.path(), "--trace", folder / "trace.json"},
      {"tune", "7B", "8xA100-80G", "--ds-config", pipe.path()},
      {"report", "7B", "8xA100-80G", "--ds-config", pipe.path(), "--json"},
      {"plot", "7B", "8xA100-80G", "--ds-config", pipe.path(), "--json"},
      {"run", "7B", "--ds-config", pipe.path(), "--device", "cpu"},
      {"verify", "7B", "--ds-config", pipe.path(), "--device", "cpu"}};
  for (const std::vector<std::string>& words : commands) {
    std::vector<std::string> command = {kProgram};
    command.insert(command.end(), words.begin(), words.end());
    command.insert(command.end(), {"--lang", "en"});
    INFO(words.front());
    Process process(command, {}, folder / "answer");
    REQUIRE(takes_signals(process.pid()));
    process.kill(signal);
    CHECK(process.wait() == 128 + signal);
    check_said(process, signal);
    CHECK(process.out().empty());
  }
  // The pipe and the last command's two outputs.
  const std::filesystem::directory_iterator files(folder.path);
  CHECK(std::distance(begin(files), end(files)) == 3);
}

TEST_CASE("measurements and predictions under way end at once, in Chinese too") {
  const Folder folder;
  Process profile(
      {kProgram, "profile", "--device", "cpu", "--nvme-path", folder.path.string(), "--lang", "zh"},
      {},
      folder / "profile");
  REQUIRE(wait_for_text(folder / "profile.err", "measuring"));
  profile.kill(SIGTERM);
  CHECK(profile.wait() == 143);
  CHECK(profile.err().ends_with("已中断（SIGTERM）\n"));
  CHECK(profile.out().empty());

  std::ofstream lines(folder / "measurements.jsonl");
  for (int i = 0; i < 20'000; ++i) {
    lines << R"({"id":"m)" << i << R"(","source":"s","scenario":{"model":"7B",)"
          << R"("cluster":"8xA100-80G","workload":{"sequence_length":)" << 256 + i
          << R"(,"micro_batch_size":1,"precision":"bf16"},"ds_config":{"zero_optimization":)"
          << R"({"stage":3},"bf16":{"enabled":true}}},"measured":{"step_seconds":)" << 1.0 + i
          << "}}\n";
  }
  lines.close();
  for (const char* command : {"validate", "calibrate"}) {
    INFO(command);
    Process process(
        {kProgram, command, folder / "measurements.jsonl", "--jobs", "4", "--lang", "en"},
        {},
        folder / "answer");
    // The test's own copy, before it becomes the program, takes a signal for Catch2, and has a
    // second thread under ThreadSanitizer.
    REQUIRE(takes_signals(process.pid()));
    const std::string threads = "/proc/" + std::to_string(process.pid()) + "/task";
    REQUIRE(wait_until([&] {
      std::error_code gone;
      const std::filesystem::directory_iterator all(threads, gone);
      return !gone && std::distance(begin(all), end(all)) > 1;
    }));
    process.kill(SIGINT);
    CHECK(process.wait() == 130);
    check_said(process, SIGINT);
    CHECK(process.out().empty());
  }
}

TEST_CASE("a run that is interrupted ends behind its step, with the checkpoint to go on from") {
  const int signal = GENERATE(SIGINT, SIGTERM);
  const Folder folder;
  std::filesystem::create_directory(folder / "saved");
  Process process(training(folder, {"10000000", "--ranks", "2", "--save", folder / "saved"}),
                  {},
                  folder / "first");
  REQUIRE(wait_for_text(folder / "first.err", "step 3:"));
  process.kill(signal);
  REQUIRE(process.wait() == 128 + signal);
  const std::vector<double> first = losses_of(process.out());
  CHECK(first.size() >= 3);
  CHECK(parse_json(process.out(), "answer").root.find("interrupted")->as_boolean());
  CHECK(process.err().find("stopped after step " + std::to_string(first.size()) +
                           "; checkpoint in " + (folder / "saved")) != std::string::npos);
  check_said(process, signal);

  // It goes on as if nothing had been.
  Process resumed(
      training(folder, {"2", "--ranks", "2", "--resume", folder / "saved"}), {}, folder / "second");
  REQUIRE(resumed.wait() == 0);
  const Json answer = parse_json(resumed.out(), "answer").root;
  CHECK_FALSE(answer.find("interrupted")->as_boolean());
  const std::string steps = std::to_string(first.size() + 2);
  Process whole(training(folder, {steps, "--ranks", "2"}), {}, folder / "whole");
  REQUIRE(whole.wait() == 0);
  std::vector<double> losses = first;
  for (const double loss : losses_of(resumed.out())) losses.push_back(loss);
  CHECK(losses == losses_of(whole.out()));
}

TEST_CASE("verify that is interrupted judges nothing") {
  const Folder folder;
  std::vector<std::string> command = training(folder, {"10000000"});
  command[1] = "verify";
  Process process(command, {}, folder / "answer");
  REQUIRE(wait_for_text(folder / "answer.err", "step 3:"));
  process.kill(SIGTERM);
  CHECK(process.wait() == 143);
  CHECK(process.out().empty());
  check_said(process, SIGTERM);
}

TEST_CASE("ranks that are processes stop behind the same step, whoever of them is told") {
  const int told = GENERATE(0, 2, -1);  // -1: all of them
  const Folder folder;
  std::filesystem::create_directory(folder / "saved");
  const auto processes =
      torchrun(4, training(folder, {"10000000", "--save", folder / "saved"}), folder);
  REQUIRE(wait_for_text(folder / "rank0.err", "step 3:"));
  for (int rank = 0; rank < 4; ++rank) {
    if (told == rank || told < 0) processes[static_cast<std::size_t>(rank)]->kill(SIGTERM);
  }
  for (int rank = 0; rank < 4; ++rank) {
    const Process& process = *processes[static_cast<std::size_t>(rank)];
    const bool knows = told == rank || told < 0;
    INFO("rank " << rank << ": " << process.err());
    CHECK(processes[static_cast<std::size_t>(rank)]->wait() == (knows ? 143 : 130));
    if (knows) check_said(process, SIGTERM);
    CHECK(process.out().empty() == (rank != 0));
  }
  const std::vector<double> losses = losses_of(processes[0]->out());
  Process resumed(
      training(folder, {"1", "--ranks", "1", "--mbs", "4", "--resume", folder / "saved"}),
      {},
      folder / "resumed");
  CHECK(resumed.wait() == 0);
}

}  // namespace
}  // namespace zeroplan::test
