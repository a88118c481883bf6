// The text of `zeroplan validate`.
#pragma once

#include <string>
#include <vector>

#include "evidence/validate.hpp"

namespace zeroplan::cli {

// What rows are gathered by: their file where there are several, else their source's repository,
// the first word of what it calls itself.
class Collections {
 public:
  explicit Collections(const std::vector<evidence::ValidatedRow>& rows);
  std::string of(const evidence::ValidatedRow& row) const;

 private:
  bool several_files_ = false;
};

// Errors by collection and metric, verdicts, the worst predictions with what may be wrong, and why
// measurements were skipped.
std::string validate_text(const evidence::ValidationReport& report,
                          const evidence::ValidateOptions& options,
                          std::size_t worst);

}  // namespace zeroplan::cli
