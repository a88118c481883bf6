// Which of CUDA's libraries a PyTorch needs, and which functions of each: what the emulated ones
// have to define.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rehearsal/elf.hpp"

namespace zeroplan::rehearsal {

struct WantedLibrary {
  std::string stem;    // "libcudart"
  std::string soname;  // "libcudart.so.13"
  // Functions with the version that they are wanted in; empty: any.
  std::map<std::string, std::string> functions;
};

// Of torch's libraries; `driver_names` are functions that it asks for by name. The driver's and
// NVML's libraries are always among them. What `extensions` want is added where they were linked
// with the same releases of CUDA's libraries; for others (bitsandbytes has one for each CUDA)
// there is nothing to do: they cannot be loaded beside that torch.
std::vector<WantedLibrary> wanted_libraries(const std::vector<SharedLibrary>& torch,
                                            const std::vector<std::string>& driver_names,
                                            const std::vector<SharedLibrary>& extensions = {});

bool wants_cuda(const SharedLibrary& library);

// Those of the files that need one of CUDA's libraries. What is no shared library is left out.
std::vector<SharedLibrary> extensions_among(const std::vector<std::string>& paths);

// Reads the libraries in torch's folder.
std::vector<WantedLibrary> wanted_libraries_of(const std::string& folder,
                                               const std::vector<SharedLibrary>& extensions);

}  // namespace zeroplan::rehearsal
