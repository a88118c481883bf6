// A part of the loops over cases: with ZEROPLAN_GOLDEN_PART=I/N every N-th case from the I-th on,
// 1 to N, so that N runs are all cases, each once (scripts/sanitized.sh). Without it, all of them.
#pragma once

#include <cstddef>
#include <string>

namespace zeroplan::test {

class Part {
 public:
  // Of "2/6". Throws std::invalid_argument for what is no part.
  explicit Part(const std::string& text);
  // `index` counts from 0.
  bool takes(std::size_t index) const { return index % parts_ == index_; }

 private:
  std::size_t index_ = 0;
  std::size_t parts_ = 1;
};

// The environment's, said aloud where it is not everything.
const Part& part_of_environment();

}  // namespace zeroplan::test
