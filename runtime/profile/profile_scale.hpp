// How much a profile measures: sizes, threads and repetitions. Units: bytes, elements, Seconds.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.hpp"
#include "runtime/profile/spread.hpp"

namespace zeroplan::runtime {

struct ProfileScale {
  Repetition repetition;
  std::int64_t memory_bytes = 0;  // of each of the three arrays
  std::int64_t parameters = 0;    // of an Adam step
  std::int64_t file_bytes = 0;
  std::int64_t largest_message = 0;
  std::vector<std::int64_t> threads;
  std::vector<std::int64_t> hidden;  // of the transformers whose products are measured
  std::int64_t tokens = 0;
  Seconds sustained;
};

}  // namespace zeroplan::runtime
