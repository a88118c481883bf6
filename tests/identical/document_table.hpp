// Tables in documents that tests write: between two marks,
//   <!-- NAME: written by identical_tests -->  and  <!-- end of NAME -->,
// and those that the program knows of itself.
#pragma once

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "evidence/accuracy.hpp"
#include "tests/catch.hpp"

namespace zeroplan::testing {

// One digit behind the point below 10 %, none above.
inline std::string percent(double ratio) {
  std::ostringstream text;
  const double value = 100.0 * ratio;
  text.precision(1);
  text << std::fixed << value;
  std::string digits = text.str();
  if (std::abs(value) >= 9.95) digits = std::to_string(std::llround(value));
  return digits + " %";
}

// Compares, or with UPDATE_GOLDEN=1 rewrites, what stands between the marks of one document.
inline void check_table(const std::string& path,
                        const std::string& name,
                        const std::string& expected) {
  const std::string first = "<!-- " + name + ": written by identical_tests -->\n";
  const std::string last = "<!-- end of " + name + " -->\n";
  std::ostringstream stream;
  stream << std::ifstream(path, std::ios::binary).rdbuf();
  std::string document = stream.str();
  const std::size_t begin = document.find(first);
  const std::size_t end = document.find(last);
  INFO(path << ": UPDATE_GOLDEN=1 identical_tests writes the table again");
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  const std::size_t start = begin + first.size();
  if (std::getenv("UPDATE_GOLDEN") == nullptr) {
    CHECK(document.substr(start, end - start) == expected);
    return;
  }
  document.replace(start, end - start, expected);
  std::ofstream(path, std::ios::binary) << document;
}

// The table of configs/accuracy, with its errors to a hundredth of a percent: compares it, or with
// UPDATE_GOLDEN=1 writes it.
inline void check_accuracy(const std::string& name, const std::vector<KnownErrors>& rows) {
  Json list = Json::array();
  for (KnownErrors row : rows) {
    row.median = std::round(1e4 * row.median) / 1e4;
    row.p95 = std::round(1e4 * row.p95) / 1e4;
    list.push_back(to_json(row));
  }
  const std::string path = ZEROPLAN_SOURCE_DIR "/configs/accuracy/" + name + ".json";
  INFO(path << ": UPDATE_GOLDEN=1 identical_tests writes it again");
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << list.dump(2) << "\n";
  }
  std::ostringstream stream;
  stream << std::ifstream(path, std::ios::binary).rdbuf();
  CHECK(stream.str() == list.dump(2) + "\n");
}

}  // namespace zeroplan::testing
