#include "tests/golden/part.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace zeroplan::test {

Part::Part(const std::string& text) {
  const char* const end = text.data() + text.size();
  std::size_t number = 0;
  const auto first = std::from_chars(text.data(), end, number);
  if (first.ec == std::errc{} && first.ptr != end && *first.ptr == '/') {
    const auto second = std::from_chars(first.ptr + 1, end, parts_);
    if (second.ec == std::errc{} && second.ptr == end && number >= 1 && number <= parts_) {
      index_ = number - 1;
      return;
    }
  }
  throw std::invalid_argument("ZEROPLAN_GOLDEN_PART: expected I/N with I from 1 to N, got \"" +
                              text + "\"");
}

const Part& part_of_environment() {
  static const Part part = [] {
    const char* const text = std::getenv("ZEROPLAN_GOLDEN_PART");
    if (text == nullptr) return Part("1/1");
    const Part read(text);
    std::printf("part %s of the golden cases alone (ZEROPLAN_GOLDEN_PART)\n", text);
    return read;
  }();
  return part;
}

}  // namespace zeroplan::test
