#include "rehearsal/emulation.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include <unistd.h>

#include "model/diagnostic.hpp"
#include "model/parallel_for.hpp"
#include "rehearsal/embedded.hpp"
#include "rehearsal/process.hpp"
#include "rehearsal/wanted_libraries.hpp"

namespace zeroplan::rehearsal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPythonFolder = "rehearsal/python/";
constexpr const char* kCore = "libzeroplan_card.so";

// Which sources define the functions of a library; the others have stubs alone.
struct Sources {
  std::string_view stem;
  std::string_view path;  // a file, or a folder with all of its own
};
constexpr std::array kSources = {Sources{"libcudart", "rehearsal/libraries/cuda_runtime/"},
                                 Sources{"libcuda", "rehearsal/libraries/cuda_driver.cpp"},
                                 Sources{"libnvidia-ml", "rehearsal/libraries/nvml.cpp"},
                                 Sources{"libcublas", "rehearsal/libraries/cublas.cpp"},
                                 Sources{"libcublasLt", "rehearsal/libraries/cublaslt.cpp"},
                                 Sources{"libcudnn", "rehearsal/libraries/cudnn.cpp"},
                                 Sources{"libnccl", "rehearsal/libraries/nccl.cpp"}};
constexpr std::array kCoreSources = {"rehearsal/libraries/card/",
                                     "rehearsal/libraries/cuda_abi.cpp"};

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

bool is_among(std::string_view path, std::string_view place) {
  return place.ends_with('/') ? path.starts_with(place) : path == place;
}

std::vector<std::string> sources_in(std::string_view place) {
  std::vector<std::string> paths;
  for (const EmbeddedFile& file : rehearsal_files()) {
    if (is_among(file.path, place) && file.path.ends_with(".cpp")) paths.emplace_back(file.path);
  }
  return paths;
}

std::string key_of(const TorchInstall& torch,
                   const std::vector<SharedLibrary>& extensions,
                   const std::vector<std::string>& compiler) {
  Hash hash;
  for (const std::string& word : compiler) hash.add(word);
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

// --- building

class Builder {
 public:
  Builder(fs::path folder, std::vector<std::string> compiler)
      : folder_(std::move(folder)), compiler_(std::move(compiler)) {}

  void build(const std::vector<WantedLibrary>& libraries) {
    for (const EmbeddedFile& file : rehearsal_files()) write(folder_ / file.path, file.text);
    std::vector<std::string> core;
    for (const char* place : kCoreSources) {
      for (std::string& path : sources_in(place)) core.push_back(std::move(path));
    }
    compile(core, kCore, {});
    parallel_for(libraries.size(),
                 std::min<std::int64_t>(machine_threads(), 8),
                 [&](std::size_t i) { build_one(libraries[i]); });
    if (!failure_.empty()) fail();
    // Triton before 3.0 links with -lcuda.
    std::error_code error;
    fs::create_symlink("libcuda.so.1", folder_ / "lib" / "libcuda.so", error);
    write(folder_ / "preload", preload(libraries));
  }

 private:
  void build_one(const WantedLibrary& library) {
    const std::string stubs = "stubs/" + library.stem + ".cpp";
    write(folder_ / stubs, stub_source(library));
    std::vector<std::string> sources = {stubs};
    for (const Sources& row : kSources) {
      if (row.stem != library.stem) continue;
      for (std::string& path : sources_in(row.path)) sources.push_back(std::move(path));
    }
    std::vector<std::string> more = {"-Wl,-soname," + library.soname,
                                     "-L" + (folder_ / "lib").string(),
                                     "-l:" + std::string(kCore),
                                     "-Wl,-rpath,$ORIGIN"};
    const std::string versions = version_script(library);
    if (!versions.empty()) {
      const fs::path script = folder_ / "stubs" / (library.stem + ".map");
      write(script, versions);
      more.push_back("-Wl,--version-script=" + script.string());
    }
    compile(sources, library.soname, more);
  }

  void compile(const std::vector<std::string>& sources,
               const std::string& name,
               const std::vector<std::string>& more) {
    std::vector<std::string> words = compiler_;
    for (const char* option : {"-std=c++17", "-O1", "-fPIC", "-shared", "-w", "-I"}) {
      words.emplace_back(option);
    }
    words.push_back(folder_.string());
    words.emplace_back("-o");
    std::error_code error;
    fs::create_directories(folder_ / "lib", error);
    words.push_back((folder_ / "lib" / name).string());
    for (const std::string& source : sources) words.push_back((folder_ / source).string());
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"-ldl", "-lpthread"});
    const Output output = run_and_read(words);
    if (output.exit == 0) return;
    const std::lock_guard guard(mutex_);
    failure_ = name + ": " + output.text;
  }

  [[noreturn]] void fail() const {
    throw InputError({compiler_.front(),
                      "",
                      "a compiler for C++17",
                      in_quotes(failure_),
                      "another compiler: CXX=g++ zeroplan rehearse ..."});
  }

  static std::string preload(const std::vector<WantedLibrary>& libraries) {
    std::string names = kCore;
    for (const WantedLibrary& library : libraries) names += "\n" + library.soname;
    return names + "\n";
  }

  fs::path folder_;
  std::vector<std::string> compiler_;
  std::mutex mutex_;
  std::string failure_;
};

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
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  std::string pattern = folder.string() + ".XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) cannot_write(folder.parent_path().string());
  return pattern;
}

}  // namespace

std::string cache_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  fs::path root = cache != nullptr && *cache == '/' ? fs::path(cache)
                  : home != nullptr && *home == '/' ? fs::path(home) / ".cache"
                                                    : fs::temp_directory_path();
  return (root / "zeroplan" / "rehearsal").string();
}

std::vector<std::string> find_compiler(const std::string& python) {
  const char* const chosen = std::getenv("CXX");
  std::vector<std::string> names = {"g++", "clang++", "c++"};
  if (chosen != nullptr && *chosen != 0) names.insert(names.begin(), chosen);
  for (const std::string& name : names) {
    const std::string program = find_program(name);
    if (!program.empty()) return {program};
  }
  if (run_and_read({python, "-c", "import ziglang"}).exit == 0) {
    return {python, "-m", "ziglang", "c++"};
  }
  return {};
}

Emulation emulation_for(const TorchInstall& torch, const Announce& announce) {
  const std::vector<std::string> compiler = find_compiler(torch.python);
  if (compiler.empty()) {
    throw InputError({"command line",
                      "COMMAND",
                      "a C++ compiler on the path",
                      "none",
                      "apt-get install g++, or pip install ziglang in the script's environment"});
  }
  const std::vector<SharedLibrary> extensions = extensions_among(torch.beside);
  const fs::path folder = fs::path(cache_folder()) / key_of(torch, extensions, compiler);
  std::error_code error;
  if (fs::exists(folder / "preload", error)) return emulation_in(folder);
  announce("making CUDA's libraries for torch " + torch.version + " (once)");
  const fs::path made = make_beside(folder);
  try {
    Builder(made, compiler).build(wanted_libraries_of(torch.library, extensions));
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
