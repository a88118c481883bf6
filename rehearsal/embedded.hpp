// What Python loads, and the library that emulates CUDA's, as they are compiled into the program.
#pragma once

#include <span>
#include <string_view>

#include "base/embedded.hpp"

namespace zeroplan::rehearsal {

std::span<const EmbeddedFile> rehearsal_files();  // generated (cmake/EmbedFiles.cmake)

// libzeroplan_nccl.so's bytes: NCCL's functions of rehearsal/libraries, on the GPU of
// rehearsal/real_gpu.
std::string_view real_gpu_library();  // generated, too

// libzeroplan_cuda.so's bytes: the functions of rehearsal/libraries, without versions.
std::string_view emulator_library();  // generated (cmake/EmulatorLibrary.cmake)

}  // namespace zeroplan::rehearsal
