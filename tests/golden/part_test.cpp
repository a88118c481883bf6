#include "tests/golden/part.hpp"

#include <stdexcept>
#include <vector>

#include "tests/catch.hpp"

namespace zeroplan::test {

TEST_CASE("the parts of the golden cases are all of them, each once") {
  constexpr std::size_t kCases = 100;
  for (const int parts : {1, 2, 7, 12, 101}) {
    std::vector<int> taken(kCases, 0);
    for (int i = 1; i <= parts; ++i) {
      const Part part(std::to_string(i) + "/" + std::to_string(parts));
      for (std::size_t index = 0; index < kCases; ++index)
        taken[index] += part.takes(index) ? 1 : 0;
    }
    CHECK(taken == std::vector<int>(kCases, 1));
  }
}

TEST_CASE(
    "what is no part of the golden cases is refused, so that nothing is left out by mistake") {
  for (const char* text :
       {"", "2", "0/3", "4/3", "1/0", "1/", "/2", "-1/2", "1/2x", " 1/2", "a/b", "1/2/3"}) {
    INFO(text);
    CHECK_THROWS_AS(Part(text), std::invalid_argument);
  }
}

}  // namespace zeroplan::test
