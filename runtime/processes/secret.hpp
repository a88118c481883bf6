// The secret by which the ranks of a job know each other (docs/security.md).
#pragma once

#include <optional>
#include <string>

#include "runtime/processes/process_group.hpp"

namespace zeroplan::runtime {

inline constexpr std::size_t kShortestSecret = 16;  // characters

// That of `file`, else of the variable ZEROPLAN_SECRET; empty where neither is said. White space
// around it does not count. Throws InputError for a secret that is too short, and a file that
// cannot be read or that everybody on the machine can read.
std::string secret_of(const std::optional<std::string>& file, const Environment& environment);

}  // namespace zeroplan::runtime
