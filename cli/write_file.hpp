// Files that commands write. Errors of the user's making (no permission, a file where a folder is
// meant) are InputErrors.
#pragma once

#include <string>
#include <string_view>

namespace zeroplan {

// Makes a folder and its parents where they are missing.
void make_folder(const std::string& path);

// Writes to a temporary name beside `path` and renames it, so that no half-written file stays
// behind.
void write_file(const std::string& path, std::string_view text);
// Throws what write_file would throw where it can be known beforehand, and writes nothing: for
// what takes long before there is something to write.
void require_writable(const std::string& path);
// The same for a folder that is there or is to be made with its parents, and for files in it.
void require_folder(const std::string& path);
// Lets everybody execute it who may read it.
void make_executable(const std::string& path);

}  // namespace zeroplan
