// The emulated libraries for one PyTorch, made in a moment, and kept.
//
// What is emulated is one library, compiled of rehearsal/libraries with this program and embedded
// in it. Beside it stand libraries under the names that torch asks for (stub_library.hpp), so that
// no compiler is needed. They stand in cache_folder()/<key>, where the key is of
// everything they depend on; a folder is there whole or not at all, also when two programs make it
// at once.
#pragma once

#include <string>
#include <vector>

#include "rehearsal/torch_install.hpp"

namespace zeroplan::rehearsal {

struct Emulation {
  std::string libraries;  // folder with the libraries under their sonames
  std::string python;     // folder for PYTHONPATH
  std::string preload;    // for LD_PRELOAD
};

// What of CUDA is emulated: all of it, or NCCL alone on a GPU that is there.
enum class Emulated { cuda, nccl };

// Throws InputError where the cache cannot be written.
Emulation emulation_for(const TorchInstall& torch, Emulated emulated = Emulated::cuda);

}  // namespace zeroplan::rehearsal
