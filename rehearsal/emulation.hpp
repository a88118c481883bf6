// The emulated libraries for one PyTorch: made of rehearsal/libraries by the machine's compiler,
// and kept.
//
// They stand in <cache>/zeroplan/rehearsal/<key>, where the key is of everything they depend on; a
// folder is there whole or not at all, also when two programs make it at once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rehearsal/torch_install.hpp"

namespace zeroplan::rehearsal {

struct Emulation {
  std::string libraries;  // folder with the libraries under their sonames
  std::string python;     // folder for PYTHONPATH
  std::string preload;    // for LD_PRELOAD
};

// $XDG_CACHE_HOME/zeroplan/rehearsal, or that in ~/.cache.
std::string cache_folder();

// Called with a sentence when the libraries are made, which takes seconds.
using Announce = std::function<void(const std::string&)>;

// Throws InputError where no compiler is found or it fails, and where the cache cannot be written.
Emulation emulation_for(const TorchInstall& torch, const Announce& announce);

// The C++ compiler and its first options: $CXX, g++, clang++, c++, else ziglang of `python`; empty
// where there is none.
std::vector<std::string> find_compiler(const std::string& python);

}  // namespace zeroplan::rehearsal
