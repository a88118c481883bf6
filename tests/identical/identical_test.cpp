// What is predicted of kept rehearsals, published measurements and drawn scenarios is what
// predictions.txt has, to the last digit; else what moved is told. UPDATE_GOLDEN=1 writes the file.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/identical/answer.hpp"
#include "tests/identical/drawn.hpp"
#include "tests/identical/published.hpp"
#include "tests/identical/rehearsed.hpp"

namespace zeroplan::identical {
namespace {

const std::string kFile = ZEROPLAN_SOURCE_DIR "/tests/identical/predictions.txt";
constexpr const char* kHead =
    "# Written by UPDATE_GOLDEN=1 identical_tests (README.md). Bytes, seconds, a probability:\n"
    "# id, allocated peak, reserved peak, allocated between steps, host peak, step seconds,\n"
    "# probability to fit, hash of the document, hash of the ranks' programs\n";

// Other compilers and options round sums in another order.
#if defined(__clang__) || defined(__SANITIZE_ADDRESS__) || !defined(NDEBUG)
constexpr bool kExactly = false;
#else
constexpr bool kExactly = true;
#endif

std::vector<Line> lines_now() {
  std::vector<Line> lines = published_lines();
  for (const Rehearsed& one : all_rehearsed()) lines.push_back(one.answer.line);
  for (Line& line : drawn_lines()) lines.push_back(std::move(line));
  std::stable_sort(
      lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.id < b.id; });
  // Lines of a file that share an id are told apart.
  for (std::size_t i = 1, same = 1; i < lines.size(); ++i) {
    const bool repeats = lines[i].id == lines[i - same].id;
    same = repeats ? same + 1 : 1;
    if (repeats) lines[i].id += "#" + std::to_string(same);
  }
  return lines;
}

std::vector<Line> lines_before() {
  std::vector<Line> lines;
  std::ifstream stream(kFile);
  for (std::string text; std::getline(stream, text);) {
    if (!text.starts_with('#')) lines.push_back(read_line(text));
  }
  return lines;
}

void write(const std::vector<Line>& lines) {
  std::ofstream stream(kFile, std::ios::binary);
  stream << kHead;
  for (const Line& line : lines) stream << written(line) << "\n";
}

Line line_of(std::string id, double bytes, double probability) {
  Line line;
  line.id = std::move(id);
  line.numbers = {bytes, bytes, bytes, bytes, 0.125, probability};
  line.document = "d";
  line.program = "p";
  return line;
}

}  // namespace

TEST_CASE("no prediction moved") {
  if (kUnderThreadSanitizer) {
    WARN("skipped: two thousand simulations take an hour under ThreadSanitizer");
    return;
  }
  const std::vector<Line> now = lines_now();
  const std::string moved = differences(lines_before(), now, kExactly);
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    write(now);
    std::cout << moved;
    return;
  }
  INFO(moved << "Is that what the change is for? UPDATE_GOLDEN=1 identical_tests writes the file.");
  CHECK(moved.empty());
}

TEST_CASE("drawn scenarios are of all kinds, most are answered, and some nearly fill their GPU") {
  if (kUnderThreadSanitizer) {
    WARN("skipped: hundreds of simulations take minutes under ThreadSanitizer");
    return;
  }
  // What was answered is in the file, which the case above holds to be today's.
  int answered = 0, doubtful = 0;
  std::map<char, int> by_kind;
  for (const Line& line : lines_before()) {
    if (!line.id.starts_with("drawn/") || !line.refusal.empty()) continue;
    ++answered;
    ++by_kind[line.id.back()];
    const double probability = line.numbers[static_cast<std::size_t>(Number::probability)];
    if (probability > 0.001 && probability < 0.999) ++doubtful;
  }
  CHECK(drawn_scenarios().size() >= 400);
  CHECK(answered >= 300);
  CHECK(doubtful >= 15);
  CHECK(by_kind.size() == 9);
  for (const auto& [kind, count] : by_kind) {
    INFO(kind);
    CHECK(count >= 5);
  }
}

TEST_CASE("a line reads as it is written") {
  Line line = line_of("a/b", 12345678901234567.0, 0.1 + 0.2);
  CHECK(differences({line}, {read_line(written(line))}, true) == "");
  line.refusal = "/model: expected a name, got 3";
  CHECK(differences({line}, {read_line(written(line))}, true) == "");
}

TEST_CASE("what moved is told by number, with its size") {
  const Line before = line_of("a", 1000.0, 0.5);
  Line now = before;
  CHECK(differences({before}, {now}, true) == "");
  now.numbers[0] = 1010.0;
  const std::string text = differences({before}, {now}, true);
  CHECK(text.find("allocated peak: 1 moved, 1 up and 0 down, median +1.0000 %") == 0);
  CHECK(text.find("+1.0000 %  1000 -> 1010  a") != std::string::npos);
  CHECK(text.find("reserved") == std::string::npos);
  now = before;
  now.document = "other";
  CHECK(differences({before}, {now}, true).find("1 lines of whose document") == 0);
  CHECK(differences({before}, {now}, false) == "");
  now.program = "other";
  CHECK(differences({before}, {now}, true).find("1 lines whose program alone") == 0);
  now.refusal = "no";
  CHECK(differences({before}, {now}, true).find("1 lines that are refused now") == 0);
  const std::string exchanged = differences({before}, {line_of("b", 1.0, 1.0)}, true);
  CHECK(exchanged.find("1 lines that are new:\n    b\n") == 0);
  CHECK(exchanged.find("1 lines that are gone:\n    a\n") != std::string::npos);
}

}  // namespace zeroplan::identical
