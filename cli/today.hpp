// The date, for documents that carry one.
#pragma once

#include <string>

namespace zeroplan::cli {

// "2026-11-22", in UTC.
std::string today();

}  // namespace zeroplan::cli
