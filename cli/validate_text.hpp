// The text of `zeroplan validate`.
#pragma once

#include <string>
#include <vector>

#include "evidence/validate.hpp"

namespace zeroplan {

// Errors by collection and metric, verdicts, the worst predictions with what may be wrong, and why
// measurements were skipped. A collection is a file where there are several, else a source's
// repository: the first word of what it calls itself.
std::string validate_text(const ValidationReport& report,
                          const ValidateOptions& options,
                          std::size_t worst);

}  // namespace zeroplan
