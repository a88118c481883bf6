// The sources of the emulated libraries and of what Python loads, as they are compiled into the
// program.
#pragma once

#include <span>

#include "model/embedded.hpp"

namespace zeroplan {

std::span<const EmbeddedFile> rehearsal_files();  // generated (cmake/EmbedFiles.cmake)

}  // namespace zeroplan
