// Golden tests: a command in, exact text, errors and exit code out.
//
// A case is a file cases/COMMAND/NAME.txt:
//   $ zeroplan ARGUMENTS        run by the shell in tests/golden, with `zeroplan` on the path
//   exit CODE
//   --- stdout
//   ...
//   --- stderr
//   ...
// UPDATE_GOLDEN=1 rewrites everything behind the first line. A stdout line of the case that is
// `...` stands for any lines. ZEROPLAN_GOLDEN_COMMAND runs the cases of one command,
// ZEROPLAN_GOLDEN_PART a part of them (part.hpp).
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "tests/catch.hpp"
#include "tests/golden/part.hpp"

namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(ZEROPLAN_SOURCE_DIR) / "tests" / "golden";

std::string read(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

struct Outcome {
  int exit_code = 0;
  std::string out;
  std::string err;
};

// Runs one line of shell with the program's folder first on PATH.
Outcome run(const std::string& command) {
  const fs::path scratch =
      fs::temp_directory_path() / ("zeroplan_golden_" + std::to_string(getpid()));
  fs::create_directories(scratch);
  const fs::path script = scratch / "run.sh";
  std::ofstream(script) << "cd '" << kFolder.string() << "'\n"
                        << "export PATH='" << ZEROPLAN_PROGRAM_DIR << "':$PATH LANG=C LC_ALL=C\n"
                        << "export ZEROPLAN_PYTHON=none SCRATCH='" << scratch.string() << "'\n"
                        << command << "\n";
  const fs::path out = scratch / "out";
  const fs::path err = scratch / "err";
  const std::string line =
      "sh '" + script.string() + "' >'" + out.string() + "' 2>'" + err.string() + "' </dev/null";
  const int status = std::system(line.c_str());
  Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : 128, read(out), read(err)};
  fs::remove_all(scratch);
  // Paths of the scratch folder differ from run to run.
  for (std::string* text : {&outcome.out, &outcome.err}) {
    for (std::size_t at; (at = text->find(scratch.string())) != std::string::npos;) {
      text->replace(at, scratch.string().size(), "SCRATCH");
    }
  }
  return outcome;
}

std::string rendered(const std::string& command_line, const Outcome& outcome) {
  return command_line + "\nexit " + std::to_string(outcome.exit_code) + "\n--- stdout\n" +
         outcome.out + "--- stderr\n" + outcome.err;
}

std::vector<std::string> lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> result;
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

// Where `expected` has a line "...", any lines of `actual` are skipped.
bool matches(const std::vector<std::string>& expected, const std::vector<std::string>& actual) {
  std::size_t a = 0;
  for (std::size_t e = 0; e < expected.size(); ++e) {
    if (expected[e] == "...") {
      if (e + 1 == expected.size()) return true;
      while (a < actual.size() && actual[a] != expected[e + 1]) ++a;
      continue;
    }
    if (a == actual.size() || actual[a] != expected[e]) return false;
    ++a;
  }
  return a == actual.size();
}

}  // namespace

TEST_CASE("golden cases print what they printed before") {
  const char* const command = std::getenv("ZEROPLAN_GOLDEN_COMMAND");
  std::vector<fs::path> cases;
  for (const auto& entry :
       fs::recursive_directory_iterator(kFolder / "cases" / (command != nullptr ? command : ""))) {
    if (entry.path().extension() == ".txt") cases.push_back(entry.path());
  }
  std::sort(cases.begin(), cases.end());
  REQUIRE_FALSE(cases.empty());
  const bool update = std::getenv("UPDATE_GOLDEN") != nullptr;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!zeroplan::test::part_of_environment().takes(i)) continue;
    const fs::path& path = cases[i];
    const std::string expected = read(path);
    const std::string command_line = expected.substr(0, expected.find('\n'));
    REQUIRE(command_line.substr(0, 2) == "$ ");
    const std::string actual = rendered(command_line, run(command_line.substr(2)));
    if (update && expected.find("\n...\n") == std::string::npos) {
      std::ofstream(path, std::ios::binary) << actual;
      continue;
    }
    INFO(path.filename().string() << "\nexpected:\n" << expected << "\nactual:\n" << actual);
    CHECK(matches(lines(expected), lines(actual)));
  }
}
