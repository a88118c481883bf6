// Writes the files of a kit into a folder.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "cli/language/translation.hpp"
#include "tuner/kit/kit.hpp"

namespace zeroplan {

// Files that are there are replaced. Says on `log` what was written.
void write_kit(const std::vector<KitFile>& files,
               const std::string& folder,
               std::ostream& log,
               const Translation& words);

}  // namespace zeroplan
