// The output shown in README.md, README.zh.md, docs/articles.md and its pages, docs/tutorial.md and
// docs/gallery.md is what the program prints. UPDATE_GOLDEN=1 rewrites it. A mark holds a command
// and pipes, so that a part may be shown:
// `<!-- output of: zeroplan fit 7B 8xA100 | sed -n 1,9p -->`.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "tests/catch.hpp"
#include "tests/golden/part.hpp"

namespace {

std::string output_of(const std::string& command) {
  const std::string line = "cd '" ZEROPLAN_SOURCE_DIR "' && PATH='" ZEROPLAN_PROGRAM_DIR
                           "':$PATH LANG=C LC_ALL=C " +
                           command + " 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(line.c_str(), "r"), pclose);
  REQUIRE(pipe);
  std::string text;
  char buffer[4096];
  while (const std::size_t n = fread(buffer, 1, sizeof(buffer), pipe.get())) text.append(buffer, n);
  return text;
}

// Compares, or rewrites, what stands behind each `output of:` of one file.
void check_outputs(const std::string& name) {
  const std::string path = ZEROPLAN_SOURCE_DIR "/" + name;
  std::stringstream stream;
  stream << std::ifstream(path).rdbuf();
  std::string readme = stream.str();
  const std::string marker = "<!-- output of: ";
  std::size_t found = 0;
  for (std::size_t at = readme.find(marker); at != std::string::npos;
       at = readme.find(marker, at + 1)) {
    const std::size_t begin = at + marker.size();
    if (!zeroplan::test::part_of_environment().takes(found++)) continue;
    const std::string command = readme.substr(begin, readme.find(" -->", begin) - begin);
    const std::size_t open = readme.find("```\n", begin) + 4;
    const std::size_t close = readme.find("```\n", open);
    const std::string actual = output_of(command);
    INFO(name << ": " << command);
    REQUIRE_FALSE(actual.empty());
    if (std::getenv("UPDATE_GOLDEN") != nullptr) {
      readme.replace(open, close - open, actual);
      continue;
    }
    CHECK(readme.substr(open, close - open) == actual);
  }
  CHECK(found > 0);
  if (std::getenv("UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << readme;
}

}  // namespace

TEST_CASE("README.md shows what the program prints") { check_outputs("README.md"); }

TEST_CASE("README.zh.md shows what the program prints") { check_outputs("README.zh.md"); }

TEST_CASE("docs/articles.md and its pages answer the articles' questions as the program does") {
  check_outputs("docs/articles.md");
  for (const char* page : {"hosts", "starcoder", "containers", "pipeline", "bert", "rules"}) {
    check_outputs(std::string("docs/article_") + page + ".md");
  }
}

TEST_CASE("docs/tutorial.md shows what the program prints") { check_outputs("docs/tutorial.md"); }

TEST_CASE("docs/gallery.md answers its questions as the program does") {
  check_outputs("docs/gallery.md");
}
