#pragma once

#include <cstdint>

namespace zeroplan {

// Images beside the text of each sequence.
struct Images {
  std::int64_t count = 0;              // in each sequence; 0: text alone
  std::int64_t width = 0, height = 0;  // pixels, as the program reads them
  friend bool operator==(const Images&, const Images&) = default;
};

}  // namespace zeroplan
