// README.zh.md has README.md's tables of accuracy, in Chinese. UPDATE_GOLDEN=1 writes them.
#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "cli/language/translation.hpp"
#include "tests/catch.hpp"

namespace {

using zeroplan::Phrase;
using zeroplan::cli::Language;
using zeroplan::cli::Translation;

const std::string kEnglish = ZEROPLAN_SOURCE_DIR "/README.md";
const std::string kChinese = ZEROPLAN_SOURCE_DIR "/README.zh.md";

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Between the line that begins with "<!-- NAME:" and the line that ends it.
Range table(const std::string& text, const std::string& name) {
  const std::size_t mark = text.find("<!-- " + name + ":");
  REQUIRE(mark != std::string::npos);
  const std::size_t begin = text.find('\n', mark) + 1;
  const std::size_t end = text.find("<!-- end of " + name + " -->", begin);
  REQUIRE(end != std::string::npos);
  return {begin, end};
}

// A sentence of README.md as the phrase that it is: its numbers are values.
Phrase sentence(const std::string& text) {
  static const std::regex number("[0-9][0-9.]*( %)?");
  Phrase made;
  auto rest = text.begin();
  for (std::sregex_iterator at(text.begin(), text.end(), number), end; at != end; ++at) {
    made += std::string(rest, (*at)[0].first).c_str();
    made += Phrase(at->str());
    rest = (*at)[0].second;
  }
  return made += std::string(rest, text.end()).c_str();
}

// Line by line, rows of a table cell by cell.
std::string translated(const std::string& text) {
  const Translation words(Language::zh);
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ") || line.starts_with("| --")) {
      result += words.text(sentence(line)) + "\n";
      continue;
    }
    std::istringstream cells(line.substr(1));
    result += "|";
    for (std::string cell; std::getline(cells, cell, '|');) {
      const std::size_t begin = cell.find_first_not_of(' ');
      const std::size_t end = cell.find_last_not_of(' ');
      const bool empty = begin == std::string::npos;
      result += empty ? cell + "|"
                      : " " + words.text(sentence(cell.substr(begin, end + 1 - begin))) + " |";
    }
    result += "\n";
  }
  return result;
}

}  // namespace

TEST_CASE("README.zh.md has the accuracy of README.md") {
  const std::string english = read(kEnglish);
  for (const char* name : {"rehearsed", "accuracy"}) {
    std::string chinese = read(kChinese);
    const Range from = table(english, name);
    const Range to = table(chinese, name);
    const std::string wanted = translated(english.substr(from.begin, from.end - from.begin));
    if (std::getenv("UPDATE_GOLDEN") != nullptr) {
      chinese.replace(to.begin, to.end - to.begin, wanted);
      std::ofstream(kChinese, std::ios::binary) << chinese;
      continue;
    }
    CHECK(chinese.substr(to.begin, to.end - to.begin) == wanted);
  }
}
