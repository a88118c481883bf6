// Files that commands write: base/output_file.hpp's, where what a user can change about the place
// (no permission, a file where a folder is meant, a full disk) is an InputError.
#pragma once

#include <string>
#include <string_view>

namespace zeroplan::cli {

// Makes a folder and its parents where they are missing.
void make_folder(const std::string& path);

// Replaces what is at `path` by `text`, at once or not at all.
void write_file(const std::string& path, std::string_view text);
// Adds a line, whole, also where others add to the same file at the same time.
void add_line(const std::string& path, std::string_view line);
// Throws what write_file would throw where it can be known beforehand, and writes nothing: for
// what takes long before there is something to write.
void require_writable(const std::string& path);
// The same for a folder that is there or is to be made with its parents, and for files in it.
void require_folder(const std::string& path);

}  // namespace zeroplan::cli
