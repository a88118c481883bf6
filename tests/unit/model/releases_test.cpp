// Which releases do what: rows of the table, switches, and that nobody else compares numbers.
#include "model/releases.hpp"

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "cli/language/translation.hpp"
#include "model/engine/engine_config.hpp"
#include "model/release_table.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

TEST_CASE("a rule acts from its first release up to the one that ended it", "[releases]") {
  constexpr ReleaseRule kRule = ReleaseRule::misses_recomputed_ends;
  CHECK_FALSE(acts(kRule, Version{0, 15, 4}));
  CHECK(acts(kRule, Version{0, 16, 0}));
  CHECK(acts(kRule, Version{0, 16, 7}));
  CHECK_FALSE(acts(kRule, Version{0, 16, 8}));
}

TEST_CASE("a rule that nothing has ended acts in releases to come", "[releases]") {
  CHECK(acts(ReleaseRule::scan_reduces_first, Version{99, 0, 0}));
  CHECK_FALSE(acts(ReleaseRule::scan_reduces_first, Version{0, 18, 9}));
}

TEST_CASE("a described behaviour begins with a series", "[releases]") {
  for (std::size_t i = 0; i <= static_cast<std::size_t>(kNewestDeepSpeed); ++i) {
    const auto version = static_cast<DeepSpeedVersion>(i);
    CHECK(nearest_described(first_release(version)).version == version);
    const bool acting = acts(ReleaseRule::stage1_without_zero, first_release(version));
    CHECK(acting == (version == DeepSpeedVersion::v0_17));
  }
}

TEST_CASE("a rule leads to its row, and ends behind where it begins", "[releases]") {
  for (const ReleaseRow& row : release_rows()) {
    CAPTURE(row.does);
    CHECK(&release_row(row.rule) == &row);
    if (row.until != Version{}) CHECK(row.until > row.since);
  }
}

TEST_CASE("every rule of a release says what it does and where that was seen", "[releases]") {
  std::set<std::string_view> sentences;
  for (const ReleaseRow& row : release_rows()) {
    CAPTURE(row.does);
    CHECK(row.does.size() > 15);
    CHECK_FALSE(row.does.ends_with('.'));
    CHECK_FALSE(row.source.empty());
    CHECK(sentences.insert(row.does).second);
    CHECK(acts(row.rule, row.since));
    if (row.until != Version{}) CHECK_FALSE(acts(row.rule, row.until));
  }
}

TEST_CASE("what a rule does is said in Chinese, too", "[releases]") {
  const cli::Translation words(cli::Language::zh);
  for (const ReleaseRow& row : release_rows()) {
    CAPTURE(row.does);
    CHECK(words.text(row.does) != row.does);
  }
}

TEST_CASE("a switched rule acts as on its other side, and no other does", "[releases]") {
  EngineConfig config;
  config.release = {0, 16, 4};
  REQUIRE(config.acts(ReleaseRule::misses_recomputed_ends));
  config.switched.flip(ReleaseRule::misses_recomputed_ends);
  for (const ReleaseRow& row : release_rows()) {
    if (row.package != Package::deepspeed) continue;
    const bool switched = row.rule == ReleaseRule::misses_recomputed_ends;
    CHECK(config.acts(row.rule) == (acts(row.rule, config.release) != switched));
  }
  config.switched.flip(ReleaseRule::misses_recomputed_ends);
  CHECK(config.switched == RuleSwitches{});
}

// NCCL, numpy and pydantic are no packages of the table (cli/doctor/checks.cpp), and the table of
// keys has releases of its own.
bool asks_another_table(const std::string& line) {
  for (const char* name : {"*version < ", "*numpy >= ", "*pydantic < ", "row.since "}) {
    if (line.find(name) != std::string::npos) return true;
  }
  return false;
}

// A number of a release outside the tables is a difference that no table knows.
TEST_CASE("no code compares releases by number", "[releases]") {
  const std::regex compared(R"((<|>|<=|>=|==|!=)\s*(Version\{[0-9]|DeepSpeedVersion::v0_))");
  for (const char* folder : {"model", "foreign", "simulator", "tuner", "evidence", "cli"}) {
    const auto root = std::filesystem::path(ZEROPLAN_SOURCE_DIR) / folder;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      const std::string extension = entry.path().extension();
      if (extension != ".cpp" && extension != ".hpp") continue;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        if (asks_another_table(line)) continue;
        CAPTURE(entry.path().string(), line);
        CHECK_FALSE(std::regex_search(line, compared));
      }
    }
  }
}
