#include "rehearsal/emulation.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include <unistd.h>

#include "base/diagnostic.hpp"
#include "rehearsal/cache.hpp"
#include "rehearsal/embedded.hpp"
#include "rehearsal/stub_library.hpp"
#include "rehearsal/wanted_libraries.hpp"

namespace zeroplan::rehearsal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPythonFolder = "rehearsal/python/";

// The library that answers, made with this program.
struct Emulator {
  const char* name;
  std::string_view library;
  std::string_view stands_for;  // the one library of CUDA's, without its version; empty: all
};
Emulator emulator_of(Emulated emulated) {
  if (emulated == Emulated::nccl) return {"libzeroplan_nccl.so", real_gpu_library(), "libnccl.so"};
  return {"libzeroplan_cuda.so", emulator_library(), ""};
}

// FNV-1a: names a folder, protects nothing.
class Hash {
 public:
  void add(std::string_view text) {
    constexpr std::uint64_t kPrime = 0x100000001b3;
    for (const char c : text) value_ = (value_ ^ static_cast<unsigned char>(c)) * kPrime;
    value_ = (value_ ^ 0xff) * kPrime;  // an end: "ab", "c" is not "a", "bc"
  }
  std::string text() const {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string digits;
    for (int shift = 60; shift >= 0; shift -= 4) digits += kDigits[value_ >> shift & 15];
    return digits;
  }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

[[noreturn]] void cannot_write(const std::string& path) {
  throw InputError({path,
                    "",
                    "a folder that can be written to",
                    "one that cannot",
                    "set XDG_CACHE_HOME to a folder for what zeroplan keeps"});
}

void write(const fs::path& path, std::string_view text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.flush();
  if (!file) cannot_write(path.string());
}

std::string key_of(const Emulator& emulator,
                   const TorchInstall& torch,
                   const std::vector<SharedLibrary>& extensions) {
  Hash hash;
  hash.add(emulator.library);
  for (const EmbeddedFile& file : rehearsal_files()) {
    hash.add(file.path);
    hash.add(file.text);
  }
  hash.add(torch.version);
  hash.add(torch.cuda);
  std::vector<std::string> libraries;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(torch.library, error)) {
    if (entry.path().extension() != ".so") continue;
    libraries.push_back(entry.path().filename().string() + " " +
                        std::to_string(entry.file_size(error)));
  }
  std::sort(libraries.begin(), libraries.end());
  for (const std::string& library : libraries) hash.add(library);
  for (const SharedLibrary& extension : extensions) {
    for (const std::string& soname : extension.needed) hash.add(soname);
    for (const WantedSymbol& symbol : extension.wanted) hash.add(symbol.name);
  }
  return torch.version + "-" + hash.text();
}

// --- what a torch needs beside the emulator: its libraries' names, and the functions that nobody
// emulates

StubLibrary stubs_of(const WantedLibrary& library,
                     const Emulator& emulator,
                     const std::set<std::string>& emulated) {
  StubLibrary stubs{library.soname, {emulator.name}, {}, {}, "zeroplan_gpu_unknown_called"};
  for (const auto& [name, version] : library.functions) {
    if (!version.empty()) stubs.versions.push_back(version);
    if (emulated.count(name) > 0) continue;
    // Marks for a profiler that is not there are nothing to report.
    stubs.functions[name] = {version, !name.starts_with("nvtx")};
  }
  return stubs;
}

void make(const fs::path& folder,
          const Emulator& emulator,
          const std::vector<WantedLibrary>& libraries) {
  for (const EmbeddedFile& file : rehearsal_files()) write(folder / file.path, file.text);
  write(folder / "lib" / emulator.name, emulator.library);
  const std::set<std::string> emulated = defined_functions(emulator.library, emulator.name);
  std::string preload = emulator.name;
  for (const WantedLibrary& library : libraries) {
    if (!library.soname.starts_with(emulator.stands_for)) continue;
    write(folder / "lib" / library.soname, stub_library(stubs_of(library, emulator, emulated)));
    preload += "\n" + library.soname;
  }
  // Triton before 3.0 links with -lcuda.
  std::error_code error;
  if (emulator.stands_for.empty()) {
    fs::create_symlink("libcuda.so.1", folder / "lib" / "libcuda.so", error);
  }
  write(folder / "preload", preload + "\n");
}

Emulation emulation_in(const fs::path& folder) {
  Emulation emulation;
  emulation.libraries = (folder / "lib").string();
  emulation.python = (folder / kPythonFolder).string();
  std::ifstream names(folder / "preload");
  for (std::string name; std::getline(names, name);) {
    emulation.preload += (emulation.preload.empty() ? "" : ":") + emulation.libraries + "/" + name;
  }
  return emulation;
}

// A folder beside `folder` that nobody else has.
fs::path make_beside(const fs::path& folder) {
  std::string pattern = folder.string() + ".XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) cannot_write(folder.parent_path().string());
  return pattern;
}

}  // namespace

Emulation emulation_for(const TorchInstall& torch, Emulated emulated) {
  const Emulator emulator = emulator_of(emulated);
  const std::vector<SharedLibrary> extensions = extensions_among(torch.beside);
  const fs::path folder = fs::path(cache_folder()) / key_of(emulator, torch, extensions);
  std::error_code error;
  require_private(folder);
  if (fs::exists(folder / "preload", error)) return emulation_in(folder);
  const fs::path made = make_beside(folder);
  try {
    make(made, emulator, wanted_libraries_of(torch.library, extensions));
  } catch (...) {
    fs::remove_all(made, error);
    throw;
  }
  fs::rename(made, folder, error);
  if (error) fs::remove_all(made, error);  // somebody else was faster
  if (!fs::exists(folder / "preload", error)) cannot_write(folder.string());
  return emulation_in(folder);
}

}  // namespace zeroplan::rehearsal
