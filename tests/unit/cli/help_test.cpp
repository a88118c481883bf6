#include "cli/help.hpp"

#include <algorithm>

#include "cli/flags.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

const cli::Translation kEnglish(cli::Language::en);

std::ptrdiff_t lines_of(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace

TEST_CASE("the first help has twenty lines and names every command; all of it has them in groups") {
  const std::string first = cli::overview_help(kEnglish, false);
  const std::string all = cli::overview_help(kEnglish, true);
  CHECK(lines_of(first) <= 20);
  for (const cli::CommandInfo& command : cli::commands()) {
    const std::string name(command.name);
    CAPTURE(name);
    CHECK(first.find(" " + name) != std::string::npos);
    CHECK(all.find("\n  " + name + " ") != std::string::npos);
    CHECK(all.find("\n  " + name + " ") == all.rfind("\n  " + name + " "));
  }
}

TEST_CASE("the first help of a command is short, and all of it has every flag") {
  for (const cli::CommandInfo& command : cli::commands()) {
    CAPTURE(std::string(command.name));
    const std::string first = cli::command_help(command, kEnglish, false);
    CHECK(lines_of(first) <= 24);
    const std::string all = cli::command_help(command, kEnglish, true);
    for (const cli::Flag& flag : flags_of(command)) {
      CHECK(all.find(std::string(flag.name)) != std::string::npos);
    }
    const bool short_enough = lines_of(all) <= 24;
    CHECK((first.find("--all") != std::string::npos) == !short_enough);
  }
}
