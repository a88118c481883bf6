// `zeroplan tune` at a terminal: the bar, and Ctrl-C as the terminal sends it.
#include <chrono>
#include <csignal>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.hpp"
#include "tests/catch.hpp"
#include "tests/processes/job.hpp"

namespace zeroplan::test {
namespace {

// A program whose standard streams are a terminal of its own, but for its standard output if that
// is to be a file.
class AtTerminal {
 public:
  AtTerminal(const std::vector<std::string>& command,
             unsigned short columns,
             const std::string& output = "") {
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const winsize size{24, columns, 0, 0};
    pid_ = forkpty(&master_, nullptr, nullptr, &size);
    if (pid_ < 0) throw std::runtime_error("no terminal");
    if (pid_ > 0) return;
    default_interrupts();
    if (!output.empty()) {
      const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      dup2(file, STDOUT_FILENO);
      close(file);
    }
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  ~AtTerminal() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(master_);
  }
  AtTerminal(const AtTerminal&) = delete;
  AtTerminal& operator=(const AtTerminal&) = delete;

  // What was shown, as soon as it matches, or after kLongest, or when the program has ended.
  const std::string& shown_until(const std::regex& pattern) {
    const auto deadline = std::chrono::steady_clock::now() + kLongest;
    while (!std::regex_search(shown_, pattern) && std::chrono::steady_clock::now() < deadline &&
           read_some()) {
    }
    INFO(shown_);
    REQUIRE(std::regex_search(shown_, pattern));
    return shown_;
  }

  void type(char key) { REQUIRE(write(master_, &key, 1) == 1); }

  void kill(int signal) { REQUIRE(::kill(pid_, signal) == 0); }

  // To its end: exit code, or 128 + signal.
  int end() {
    bool ended = false;
    while (read_some(&ended)) {
    }
    if (!ended) ::kill(pid_, SIGKILL);  // it hangs
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  const std::string& shown() const { return shown_; }

 private:
  // A search says nothing until it has bounds of every strategy.
  static constexpr std::chrono::seconds kLongest = 2 * kPatience;

  // False: the other side is closed, which is told, or silent for kLongest.
  bool read_some(bool* ended = nullptr) {
    pollfd ready{master_, POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(1000 * kLongest.count())) <= 0) return false;
    char buffer[4096];
    const ssize_t count = read(master_, buffer, sizeof buffer);
    if (ended != nullptr) *ended = count <= 0;
    if (count <= 0) return false;
    shown_.append(buffer, static_cast<std::size_t>(count));
    return true;
  }

  int master_ = -1;
  pid_t pid_ = -1;
  std::string shown_;
};

constexpr char kCtrlC = 3;

const std::regex kUnderWay(
    "simulated, [0-9.]+ % of [0-9]+ points left; best so far [0-9]+ tokens/s per GPU, ");

// Hard enough that nobody finishes it before the key is typed. Under ThreadSanitizer it takes
// minutes until it shows anything: [search] names the tests that ask it.
const std::vector<std::string> kQuestion = {
    ZEROPLAN_PROGRAM, "tune", "llama-2-7b", "8xH100-80G", "--time-limit", "600", "--lang", "en"};

}  // namespace

TEST_CASE("a search at a terminal shows how far it is, and Ctrl-C prints the best so far",
          "[search]") {
  AtTerminal search(kQuestion, 160);
  CHECK(search.shown_until(kUnderWay).find("\r[") != std::string::npos);
  search.type(kCtrlC);
  CHECK(search.end() == 130);
  const std::string& shown = search.shown();
  CHECK(shown.find("interrupted, so this is the best so far") != std::string::npos);
  CHECK(shown.find("zero_optimization") != std::string::npos);
  // The bar is wiped before the answer.
  const std::size_t bar = shown.rfind("\r[");
  REQUIRE(bar != std::string::npos);
  CHECK(shown.find(" \r", bar) != std::string::npos);
}

TEST_CASE("an interrupted search still prints one JSON document, and its bar does not go into it",
          "[search]") {
  const Folder folder;
  std::vector<std::string> question = kQuestion;
  question.push_back("--json");
  AtTerminal search(question, 160, folder / "answer.json");
  search.shown_until(kUnderWay);
  search.type(kCtrlC);
  CHECK(search.end() == 130);
  const Json answer = parse_json(read_text(folder / "answer.json"), "answer.json").root;
  CHECK(answer.find("optimal")->as_boolean() == false);
}

TEST_CASE("a search that is told to end prints the best so far, and says which signal it was",
          "[search]") {
  AtTerminal search(kQuestion, 160);
  search.shown_until(kUnderWay);
  search.kill(SIGTERM);
  CHECK(search.end() == 143);
  const std::string& shown = search.shown();
  CHECK(shown.find("interrupted, so this is the best so far") != std::string::npos);
  CHECK(shown.find("zero_optimization") != std::string::npos);
  CHECK(shown.find("interrupted (SIGTERM)") != std::string::npos);
}

TEST_CASE("a report that is interrupted shows what was found", "[search]") {
  const Folder folder;
  std::vector<std::string> question = kQuestion;
  question[1] = "report";
  question.push_back("--json");
  AtTerminal search(question, 160, folder / "report.json");
  search.shown_until(kUnderWay);
  search.type(kCtrlC);
  CHECK(search.end() == 130);
  CHECK(search.shown().find("interrupted (SIGINT)") != std::string::npos);
  const Json report = parse_json(read_text(folder / "report.json"), "report.json").root;
  CHECK(report.find("search")->find("interrupted")->as_boolean());
  CHECK_FALSE(report.find("chosen")->is_null());
}

TEST_CASE("a bar never wraps: on a narrow terminal its cells and what is least needed give way",
          "[search]") {
  const unsigned short columns = GENERATE(40, 80);
  for (const char* language : {"en", "zh"}) {
    std::vector<std::string> question = kQuestion;
    question.back() = language;
    AtTerminal search(question, columns);
    const std::string bars = search.shown_until(std::regex("\\r[^\\r]+\\r[^\\r]+\\r"));
    search.type(kCtrlC);
    CHECK(search.end() == 130);
    // Cells go first, then words: at 40 columns there are none.
    CHECK((bars.find("\r[") != std::string::npos) == (columns == 80));
    for (std::size_t at = 0; at < bars.size();) {
      const std::size_t end = std::min(bars.find('\r', at), bars.size());
      int wide = 0;
      for (std::size_t i = at; i < end; ++i) {
        const auto byte = static_cast<unsigned char>(bars[i]);
        if ((byte & 0xC0) != 0x80) wide += byte >= 0xE3 ? 2 : 1;
      }
      CAPTURE(bars.substr(at, end - at));
      CHECK(wide < columns);
      at = end + 1;
    }
  }
}

}  // namespace zeroplan::test
