// Sizes that are each within their range and together too large to count (SizeOverflow of
// check.hpp), as bad input.
#pragma once

#include "base/diagnostic.hpp"

namespace zeroplan {

InputError too_large();

}  // namespace zeroplan
