// What a shared library of a 64-bit little-endian machine says of itself to the linker: its name,
// the libraries it needs, and the symbols it wants of them with their versions. No tool (nm,
// readelf) has to be installed.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace zeroplan::rehearsal {

struct WantedSymbol {
  std::string name;
  std::string version;  // "libcudart.so.13"; empty: any
  std::string library;  // of the version: the file name it was linked with; empty without a version
  friend bool operator==(const WantedSymbol&, const WantedSymbol&) = default;
};

struct SharedLibrary {
  std::string soname;
  std::vector<std::string> needed;   // libraries, by soname
  std::vector<WantedSymbol> wanted;  // symbols that others must define
};

// Throws InputError where `bytes` are no such library; `file` is for the message.
SharedLibrary read_shared_library(std::string_view bytes, const std::string& file);

// The same of a file, which is mapped and not read whole: torch's are up to 1.5 GB.
SharedLibrary read_shared_library_file(const std::string& path);

// Functions and data that the library defines for others.
std::set<std::string> defined_functions(std::string_view bytes, const std::string& file);

// Texts of the file that are names of functions of CUDA's driver or of NVML: a program that asks
// for them by name when it runs wants them without saying so to the linker.
std::vector<std::string> driver_names(std::string_view bytes);
std::vector<std::string> driver_names_of_file(const std::string& path);

}  // namespace zeroplan::rehearsal
