// Writes the files of a kit into a folder: all of them or none, and nothing over what it did not
// write.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "cli/language/translation.hpp"
#include "tuner/kit/kit.hpp"

namespace zeroplan::cli {

// What an earlier call wrote there, and nobody has changed since, is replaced, and goes where the
// new kit has no such file; .zeroplan-kit.json in the folder keeps sizes and checksums for that.
// Throws InputError with every file that is somebody else's, or was changed; `force` replaces them.
// Where writing fails, what was there is there again. Says on `log` what was written.
void write_kit(const std::vector<tuner::KitFile>& files,
               const std::string& folder,
               bool force,
               std::ostream& log,
               const Translation& words);

// For commands that compute for long before they have a kit: throws what write_kit() would throw as
// far as it is known which files a kit has.
void require_kit_folder(const std::string& folder, bool force);

}  // namespace zeroplan::cli
