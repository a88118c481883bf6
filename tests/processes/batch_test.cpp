// `simulate --batch` as a process: answers as they are ready, and what stays when it is ended.
#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "tests/catch.hpp"
#include "tests/processes/job.hpp"
#include "tests/processes/pipe.hpp"

namespace zeroplan::test {
namespace {

using std::chrono::seconds;

// Some milliseconds.
std::string light(int id) {
  return R"({"id":")" + std::to_string(id) + R"(","model":"7B","cluster":"8xA100-80G"})" + "\n";
}

// Fifty times as long: 64 micro-batches with states and weights on drives.
std::string heavy(int id) {
  return R"({"id":")" + std::to_string(id) +
         R"(","model":"llama-2-70b","cluster":"4x8xA100-80G","workload":{"gradient_accumulation_steps":64},)"
         R"("ds_config":{"zero_optimization":{"stage":3,"sub_group_size":10000000,)"
         R"("offload_optimizer":{"device":"nvme","nvme_path":"/n"},)"
         R"("offload_param":{"device":"nvme","nvme_path":"/n"}}}})" +
         "\n";
}

std::string write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

// More than is answered before a test has ended it.
std::string endless_file(const Folder& folder) {
  std::string lines;
  for (int i = 0; i < 100'000; ++i) lines += light(i);
  return write(folder / "endless.jsonl", lines);
}

std::vector<std::string> batch(const std::string& input, int jobs) {
  return {ZEROPLAN_PROGRAM,
          "simulate",
          "--batch",
          input,
          "--jobs",
          std::to_string(jobs),
          "--lang",
          "en"};
}

// The ids of answers, each of which must be whole.
std::vector<std::string> ids_of(const std::string& answers) {
  std::vector<std::string> ids;
  for (std::size_t at = 0; at < answers.size();) {
    const std::size_t end = answers.find('\n', at);
    REQUIRE(end != std::string::npos);
    const Json answer = parse_json(answers.substr(at, end - at), "answer").root;
    ids.push_back(answer.find("id")->as_string());
    at = end + 1;
  }
  return ids;
}

// What a process that still writes has ended: a long answer takes several writes.
std::string ended_lines(const std::string& answers) {
  const std::size_t last = answers.rfind('\n');
  return last == std::string::npos ? std::string() : answers.substr(0, last + 1);
}

void check_whole_and_in_order(const std::string& answers) {
  const std::vector<std::string> ids = ids_of(answers);
  for (std::size_t i = 0; i < ids.size(); ++i) REQUIRE(ids[i] == std::to_string(i));
}

TEST_CASE("answers of lines that cost very different times stay in the order of the lines") {
  const Folder folder;
  std::string lines;
  for (int i = 0; i < 24; ++i) {
    lines += i == 1 ? heavy(i) : light(i);
    if (i == 5) lines += "\r\n  \t\n";
  }
  lines.insert(lines.find('\n') + 1, "\n");
  lines.pop_back();  // the last line has no end
  const std::string input = write(folder / "lines.jsonl", lines);
  Process one(batch(input, 1), {}, folder / "one");
  Process four(batch(input, 4), {}, folder / "four");
  REQUIRE(one.wait() == 0);
  REQUIRE(four.wait() == 0);
  CHECK(ids_of(four.out()).size() == 24);
  check_whole_and_in_order(four.out());
  CHECK(four.out() == one.out());
}

TEST_CASE("who holds a pipe open gets each answer before the next line") {
  const int jobs = GENERATE(1, 4);
  const bool by_name = GENERATE(true, false);
  const Folder folder;
  Pipe pipe(folder / "questions");
  std::vector<std::string> command = batch(by_name ? pipe.path() : "-", jobs);
  if (!by_name) {
    std::string line = "exec";
    for (const std::string& word : command) line += " '" + word + "'";
    command = {"sh", "-c", line + " <'" + pipe.path() + "'"};
  }
  Process process(command, {}, folder / "answers");
  for (int i = 0; i < 3; ++i) {
    pipe.send(light(i));
    REQUIRE(wait_until(
        [&] { return ids_of(ended_lines(process.out())).size() == std::size_t(i) + 1; }));
  }
  CHECK(takes_signals(process.pid()));  // so it has the pipe
  pipe.send("no JSON\n");
  REQUIRE(wait_for_text(folder / "answers.err", "line 4"));
  pipe.end();
  CHECK(process.wait() == 4);
}

TEST_CASE("a batch that is killed leaves whole answers, the first ones") {
  const Folder folder;
  Process process(batch(endless_file(folder), 4), {}, folder / "answers");
  REQUIRE(wait_until([&] { return process.out().size() > 50'000; }));
  process.kill(SIGKILL);
  REQUIRE(process.wait() == 128 + SIGKILL);
  check_whole_and_in_order(process.out());
}

TEST_CASE("a signal ends a batch behind the lines that were begun") {
  const int signal = GENERATE(SIGINT, SIGTERM);
  const int jobs = GENERATE(1, 4);
  const Folder folder;
  Process process(batch(endless_file(folder), jobs), {}, folder / "answers");
  REQUIRE(wait_until([&] { return process.out().size() > 20'000; }));
  process.kill(signal);
  CHECK(process.wait() == 128 + signal);
  CHECK(process.err() == (signal == SIGINT ? "interrupted (SIGINT)\n" : "interrupted (SIGTERM)\n"));
  check_whole_and_in_order(process.out());
}

// ThreadSanitizer keeps a signal back until its thread returns from what it waits in, but for some
// system calls; pthread_mutex_lock and write are not among them (libtsan of g++ 12: neither calls
// BLOCK_REAL). What only the signal would end then never ends; without it, the handler runs at
// once.
bool signals_come() {
  if (kUnderThreadSanitizer) {
    WARN(
        "SKIPPED: ThreadSanitizer keeps the signal back from a thread that waits for a mutex or a "
        "pipe");
  }
  return !kUnderThreadSanitizer;
}

TEST_CASE("a signal ends a batch that waits for its next line, part of which is there") {
  if (!signals_come()) return;
  const Folder folder;
  Pipe pipe(folder / "questions");
  Process process(batch(pipe.path(), 4), {}, folder / "answers");
  pipe.send(light(0) + R"({"id":)");
  REQUIRE(wait_until([&] { return ids_of(ended_lines(process.out())).size() == 1; }));
  process.kill(SIGTERM);
  CHECK(process.wait() == 143);
  CHECK(ids_of(process.out()).size() == 1);
  CHECK(process.err() == "interrupted (SIGTERM)\n");
}

TEST_CASE("the second signal ends what the first one could not") {
  if (!signals_come()) return;
  const Folder folder;
  // Nobody reads the answers: the pipe fills, and the batch waits with an answer begun.
  Pipe answers(folder / "answers");
  Process process(batch(endless_file(folder), 1), {}, answers.path());
  REQUIRE(takes_signals(process.pid()));
  const std::string where = "/proc/" + std::to_string(process.pid()) + "/wchan";
  REQUIRE(wait_until([&] { return read_text(where).find("pipe") != std::string::npos; }));
  process.kill(SIGINT);
  CHECK_FALSE(process.wait(seconds(1)).has_value());
  process.kill(SIGTERM);
  CHECK(process.wait() == 143);
  CHECK(read_text(folder / "answers.err") == "interrupted (SIGTERM)\n");
}

TEST_CASE("a batch whose reader goes ends quietly, and one on a full disk says so") {
  const Folder folder;
  std::string line =
      "exec 2>'" + (folder / "said") + "'; '" ZEROPLAN_PROGRAM "' simulate --batch '";
  line += endless_file(folder) + "' | head -n 1";
  Process piped({"bash", "-c", line + R"(; echo "${PIPESTATUS[0]}")"}, {}, folder / "answers");
  REQUIRE(piped.wait() == 0);
  CHECK(piped.out().ends_with("}\n141\n"));
  CHECK(read_text(folder / "said").empty());
  Process full(
      {"sh", "-c", line.substr(0, line.find(" |")) + " --lang en >/dev/full"}, {}, folder / "full");
  CHECK(full.wait() == 1);
  CHECK(read_text(folder / "said").find("a full disk") != std::string::npos);
}

TEST_CASE("who ignores SIGINT for a batch keeps it") {
  const Folder folder;
  Pipe pipe(folder / "questions");
  std::string line = "trap '' INT; exec";
  for (const std::string& word : batch(pipe.path(), 1)) line += " '" + word + "'";
  Process process({"sh", "-c", line}, {}, folder / "answers");
  REQUIRE(takes_signals(process.pid()));
  process.kill(SIGINT);
  pipe.send(light(0));
  REQUIRE(wait_until([&] { return ids_of(ended_lines(process.out())).size() == 1; }));
  pipe.end();
  CHECK(process.wait() == 0);
}

}  // namespace
}  // namespace zeroplan::test
