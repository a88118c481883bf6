#include "rehearsal/wanted_libraries.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/diagnostic.hpp"

namespace zeroplan::rehearsal {
namespace {

namespace fs = std::filesystem;

// Libraries of CUDA with the beginnings of their functions' names, for symbols without a version.
// The longer of two beginnings stands first.
struct KnownLibrary {
  std::string_view stem;
  std::string_view beginning;  // empty: known by versions alone
};
constexpr std::array kKnown = {
    KnownLibrary{"libcublasLt", "cublasLt"},     KnownLibrary{"libcublas", "cublas"},
    KnownLibrary{"libcudnn", "cudnn"},           KnownLibrary{"libnccl", "nccl"},
    KnownLibrary{"libcusparseLt", "cusparseLt"}, KnownLibrary{"libcusparse", "cusparse"},
    KnownLibrary{"libcusolver", "cusolver"},     KnownLibrary{"libcufft", "cufft"},
    KnownLibrary{"libcurand", "curand"},         KnownLibrary{"libcupti", "cupti"},
    KnownLibrary{"libnvrtc", "nvrtc"},           KnownLibrary{"libnvshmem_host", "nvshmem"},
    KnownLibrary{"libcufile", "cuFile"},         KnownLibrary{"libnvToolsExt", "nvtx"},
    KnownLibrary{"libnvtx3interop", ""},         KnownLibrary{"libnvJitLink", "nvJitLink"},
    KnownLibrary{"libnvidia-ml", "nvml"},        KnownLibrary{"libcudart", "__cuda"},
    KnownLibrary{"libcudart", "cuda"},           KnownLibrary{"libcuda", "cu"}};

std::string stem_of(const std::string& soname) { return soname.substr(0, soname.find(".so")); }

bool is_known(const std::string& stem) {
  return std::any_of(
      kKnown.begin(), kKnown.end(), [&](const KnownLibrary& k) { return k.stem == stem; });
}

bool begins_like(const std::string& name, std::string_view beginning) {
  if (beginning.empty() || !name.starts_with(beginning)) return false;
  // "cuInit" is the driver's, "cudaFree" is not, and neither is what merely begins with cu.
  if (beginning == "cu") return name.size() > 2 && name[2] >= 'A' && name[2] <= 'Z';
  return true;
}

std::string stem_by_name(const std::string& name) {
  for (const KnownLibrary& known : kKnown) {
    if (begins_like(name, known.beginning)) return std::string(known.stem);
  }
  return "";
}

// C++'s names hold more than functions; of CUDA's libraries torch wants none.
bool is_c_name(const std::string& name) { return !name.starts_with("_Z"); }

// What several libraries want together.
class Wanted {
 public:
  void need(const std::string& soname) {
    const std::string stem = stem_of(soname);
    if (is_known(stem)) by_stem_.try_emplace(stem, WantedLibrary{stem, soname, {}});
  }
  void need_all(const SharedLibrary& library) {
    for (const std::string& soname : library.needed) need(soname);
  }
  // Whether it was linked with other releases of CUDA's libraries than those that are there.
  bool differs(const SharedLibrary& library) const {
    return std::any_of(library.needed.begin(), library.needed.end(), [&](const std::string& name) {
      const auto found = by_stem_.find(stem_of(name));
      return found != by_stem_.end() && found->second.soname != name;
    });
  }
  void want_functions(const SharedLibrary& library) {
    for (const WantedSymbol& symbol : library.wanted) {
      if (!is_c_name(symbol.name)) continue;
      const bool versioned = !symbol.version.empty();
      const auto found =
          by_stem_.find(versioned ? stem_of(symbol.library) : stem_by_name(symbol.name));
      if (found != by_stem_.end()) found->second.functions[symbol.name] = symbol.version;
    }
  }
  void want_by_name(const std::string& name) {
    const auto found = by_stem_.find(stem_by_name(name));
    if (found != by_stem_.end()) found->second.functions.try_emplace(name, "");
  }
  std::vector<WantedLibrary> libraries() const {
    std::vector<WantedLibrary> all;
    for (const auto& [stem, library] : by_stem_) all.push_back(library);
    return all;
  }

 private:
  std::map<std::string, WantedLibrary> by_stem_;
};

}  // namespace

bool wants_cuda(const SharedLibrary& library) {
  return std::any_of(library.needed.begin(), library.needed.end(), [](const std::string& name) {
    return is_known(stem_of(name));
  });
}

std::vector<WantedLibrary> wanted_libraries(const std::vector<SharedLibrary>& torch,
                                            const std::vector<std::string>& driver_names,
                                            const std::vector<SharedLibrary>& extensions) {
  Wanted wanted;
  for (const SharedLibrary& library : torch) wanted.need_all(library);
  wanted.need("libcuda.so.1");
  wanted.need("libnvidia-ml.so.1");
  for (const SharedLibrary& library : torch) wanted.want_functions(library);
  for (const SharedLibrary& library : extensions) {
    if (wanted.differs(library)) continue;
    wanted.need_all(library);
    wanted.want_functions(library);
  }
  for (const std::string& name : driver_names) wanted.want_by_name(name);
  return wanted.libraries();
}

std::vector<SharedLibrary> extensions_among(const std::vector<std::string>& paths) {
  std::vector<SharedLibrary> extensions;
  for (const std::string& path : paths) {
    try {
      SharedLibrary library = read_shared_library_file(path);
      if (wants_cuda(library)) extensions.push_back(std::move(library));
    } catch (const InputError&) {  // a package may hold anything under such a name
    }
  }
  return extensions;
}

std::vector<WantedLibrary> wanted_libraries_of(const std::string& folder,
                                               const std::vector<SharedLibrary>& extensions) {
  // The libraries that ask for functions by name; the kernels' library alone is large.
  constexpr std::array kAskers = {"libc10_cuda.so", "libcaffe2_nvrtc.so"};
  std::vector<SharedLibrary> libraries;
  std::vector<std::string> names;
  std::error_code error;
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".so") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    libraries.push_back(read_shared_library_file(path.string()));
    const bool asks = std::find(kAskers.begin(), kAskers.end(), path.filename()) != kAskers.end();
    if (!asks) continue;
    for (std::string& name : driver_names_of_file(path.string())) names.push_back(std::move(name));
  }
  if (libraries.empty()) {
    throw InputError({folder, "", "PyTorch's libraries", "none", ""});
  }
  return wanted_libraries(libraries, names, extensions);
}

}  // namespace zeroplan::rehearsal
