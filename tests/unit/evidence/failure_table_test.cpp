#include "evidence/failure_table.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "base/embedded.hpp"
#include "cli/language/translation.hpp"
#include "evidence/log_symptoms.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

constexpr std::string_view kTable = R"({"schema": "zeroplan.failures/1", "failures": [
  {"code": "special", "words": ["lost {thing} of {owner}, line {number}"],
   "cause": ["{owner} lost {thing}", "something is lost"], "remedy": "look", "source": "x"},
  {"code": "general", "kind": "follows", "words": ["lost"], "cause": "lost", "remedy": "look",
   "source": "x"},
  {"code": "where", "kind": "where", "words": ["in f"], "cause": "in f", "remedy": "g",
   "source": "x"}]})";

std::vector<evidence::FoundFailure> found_in(const evidence::FailureTable& table,
                                             std::string_view text) {
  const std::vector<evidence::LogText> logs = evidence::split_log(std::string(text));
  REQUIRE(logs.size() == 1);
  return table.find(logs.front());
}

// The words of a row as a log may say them: each slot filled with a word.
std::string said(const evidence::FailureWords& words) {
  std::string text = words.pieces.front();
  for (std::size_t i = 1; i < words.pieces.size(); ++i) text += "7 " + words.pieces[i];
  return text;
}

}  // namespace

TEST_CASE("A row's slots take what stands there, in any case and white space") {
  const evidence::FailureTable table(kTable, "table");
  const auto found = found_in(table, "I LOST  the keys of Ann,   line 7.\n");
  REQUIRE(found.size() == 1);
  CHECK(found[0].failure->code == "special");
  CHECK(found[0].values.at("thing") == "the keys");
  CHECK(found[0].values.at("owner") == "Ann");
  CHECK(found[0].values.at("number") == "7");
  CHECK(evidence::filled_text(found[0].failure->cause, found[0].values) == "Ann lost the keys");
  CHECK(evidence::filled_text(found[0].failure->cause, {}) == "something is lost");
}

TEST_CASE("The first row of the table speaks for a line, and a slot ends with its line") {
  const evidence::FailureTable table(kTable, "table");
  const auto found =
      found_in(table, "lost and lost keys of B, line 1 in f\nlost x\nof C, line 2\n");
  REQUIRE(found.size() == 3);
  CHECK(found[0].failure->code == "special");
  CHECK(found[1].failure->code == "where");
  CHECK(found[2].failure->code == "general");
}

TEST_CASE("A value as long as a page is none") {
  const evidence::FailureTable table(kTable, "table");
  const auto found = found_in(table, "lost " + std::string(5000, 'x') + " of D, line 3\n");
  REQUIRE(found.size() == 1);
  CHECK(found[0].failure->code == "general");
}

TEST_CASE("Every row of the repository's table is found by each of its words") {
  std::set<std::string> codes;
  for (const evidence::KnownFailure& row : evidence::known_failures().rows()) {
    CAPTURE(row.code);
    CHECK(codes.insert(row.code).second);
    for (const evidence::FailureWords& words : row.words) {
      const std::string text = said(words);
      CAPTURE(text);
      const auto found = found_in(evidence::known_failures(), text + "\n");
      REQUIRE_FALSE(found.empty());
      // One that is more special may speak for its line.
      const bool known =
          std::any_of(found.begin(), found.end(), [&](const evidence::FoundFailure& one) {
            return one.failure <= &row;
          });
      CHECK(known);
      CHECK_FALSE(
          evidence::filled_text(found.front().failure->cause, found.front().values).empty());
      CHECK_FALSE(
          evidence::filled_text(found.front().failure->remedy, found.front().values).empty());
    }
  }
  CHECK(codes.size() > 150);
}

TEST_CASE("What the table says is said in Chinese, too") {
  const cli::Translation words(cli::Language::zh);
  const auto is_command = [](const Phrase& text) {
    constexpr std::string_view kBegins[] = {
        "pip ", "nvidia-smi", "python3 ", "echo ",     "which ",      "zeroplan ", "df ", "ip ",
        "ls ",  "ulimit",     "dmesg",    "ds_report", "ldconfig",    "lscpu",     "ldd", "gcc",
        "nvcc", "systemctl",  "hostname", "ss ",       "ssh ",        "scontrol",  "nc ", "dpkg",
        "pdsh", "export ",    "ps ",      "print(",    "truncation=", "getent"};
    return std::any_of(std::begin(kBegins), std::end(kBegins), [&](std::string_view begin) {
      return text.english().starts_with(begin);
    });
  };
  for (const evidence::KnownFailure& row : evidence::known_failures().rows()) {
    CAPTURE(row.code);
    evidence::FailureValues values;
    for (const evidence::FailureWords& said : row.words) {
      for (const std::string& name : said.names) values[name] = "X7";
    }
    for (const auto* texts : {&row.cause, &row.check, &row.remedy}) {
      for (const std::string& text : *texts) {
        const Phrase phrase = evidence::filled_text({text}, values);
        CAPTURE(text);
        REQUIRE_FALSE(phrase.empty());
        CHECK((words.text(phrase) != phrase.english() || is_command(phrase)));
      }
    }
  }
}
