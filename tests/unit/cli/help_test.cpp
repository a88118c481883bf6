#include "cli/help.hpp"

#include <algorithm>

#include "cli/flags.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

const Translation kEnglish(Language::en);

std::ptrdiff_t lines_of(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace

TEST_CASE("the first help has twenty lines and names every command; all of it has them in groups") {
  const std::string first = overview_help(kEnglish, false);
  const std::string all = overview_help(kEnglish, true);
  CHECK(lines_of(first) <= 20);
  for (const CommandInfo& command : commands()) {
    const std::string name(command.name);
    CAPTURE(name);
    CHECK(first.find(" " + name) != std::string::npos);
    CHECK(all.find("\n  " + name + " ") != std::string::npos);
    CHECK(all.find("\n  " + name + " ") == all.rfind("\n  " + name + " "));
  }
}

TEST_CASE("the first help of a command is short, and all of it has every flag") {
  for (const CommandInfo& command : commands()) {
    CAPTURE(std::string(command.name));
    const std::string first = command_help(command, kEnglish, false);
    CHECK(lines_of(first) <= 24);
    const std::string all = command_help(command, kEnglish, true);
    for (const Flag& flag : flags_of(command)) {
      CHECK(all.find(std::string(flag.name)) != std::string::npos);
    }
    const bool short_enough = lines_of(all) <= 24;
    CHECK((first.find("--all") != std::string::npos) == !short_enough);
  }
}
