#include "runtime/cuda/cudnn/cudnn_loaded.hpp"

#include <optional>
#include <string>

#include <dlfcn.h>

namespace zeroplan::runtime::cuda {
namespace {

struct Found {
  std::optional<CudnnLibrary> library;
  std::string problem;
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

Found look() {
  const std::string file = "libcudnn.so." + std::to_string(CUDNN_MAJOR);
  void* opened = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) return {std::nullopt, std::string("cuDNN: ") + ::dlerror()};
  CudnnLibrary all{};
  const bool whole = find(opened, "cudnnGetVersion", all.version) &&
                     find(opened, "cudnnGetErrorString", all.error_string) &&
                     find(opened, "cudnnGetLastErrorString", all.last_error) &&
                     find(opened, "cudnnCreate", all.create) &&
                     find(opened, "cudnnDestroy", all.destroy) &&
                     find(opened, "cudnnSetStream", all.set_stream) &&
                     find(opened, "cudnnBackendCreateDescriptor", all.create_descriptor) &&
                     find(opened, "cudnnBackendDestroyDescriptor", all.destroy_descriptor) &&
                     find(opened, "cudnnBackendSetAttribute", all.set) &&
                     find(opened, "cudnnBackendGetAttribute", all.get) &&
                     find(opened, "cudnnBackendFinalize", all.finalize) &&
                     find(opened, "cudnnBackendExecute", all.execute);
  if (!whole) return {std::nullopt, file + " lacks a function of the graph API"};
  return {all, {}};
}

}  // namespace

const CudnnLibrary* cudnn_library(const char** why) {
  static const Found found = look();
  if (why != nullptr) *why = found.problem.c_str();
  return found.library ? &*found.library : nullptr;
}

}  // namespace zeroplan::runtime::cuda
