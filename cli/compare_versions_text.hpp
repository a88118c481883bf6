// The answer of --compare-versions as text.
#pragma once

#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "cli/language/translation.hpp"
#include "tuner/compare_versions.hpp"

namespace zeroplan {

// What is asked about, a table with one row for each set, what changes between neighbouring sets in
// words, and warnings of single sets. `strategy`: what fit chose; empty for a configuration that
// was said.
std::string compare_versions_text(const ComparedVersions& answer,
                                  const std::string& strategy,
                                  const Translation& words);

}  // namespace zeroplan
