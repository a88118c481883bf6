// Files of the repository that are compiled into the program (cmake/EmbedFiles.cmake):
// hardware profiles and model presets.
#pragma once

#include <span>
#include <string_view>

namespace zeroplan {

struct EmbeddedFile {
  std::string_view path;  // from the repository root, e.g. "profiles/gpus.json"
  std::string_view text;
};

std::span<const EmbeddedFile> embedded_files();

// The text of one file. Precondition: the file is embedded (a missing one is a programmer's error).
std::string_view embedded_file(std::string_view path);

}  // namespace zeroplan
