// A driver of CUDA for real_gpu_test.cpp: memory is the host's, copies are made at once, and
// kernels are written down.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {
std::vector<std::string> names;  // of kernels, whose handles are their numbers
std::string calls;               // between spaces
}  // namespace

extern "C" {

const char* fake_cuda_calls() { return calls.c_str(); }

int cuModuleLoadData(void** module, const void*) {
  *module = &names;
  return 0;
}
int cuModuleGetFunction(void** function, void*, const char* name) {
  names.push_back(name);
  *function = reinterpret_cast<void*>(names.size());
  return 0;
}
int cuFuncSetAttribute(void*, int, int) { return 0; }
int cuLaunchKernel(void* function,
                   unsigned blocks,
                   unsigned,
                   unsigned,
                   unsigned,
                   unsigned,
                   unsigned,
                   unsigned,
                   void*,
                   void** arguments,
                   void**) {
  const std::string& name = names[reinterpret_cast<std::uintptr_t>(function) - 1];
  calls += name;
  if (name == "occupy") {
    calls += ":" + std::to_string(blocks) + ":" +
             std::to_string(*static_cast<std::uint64_t*>(arguments[1]));
  }
  if (name == "multiply8") {
    auto* const at = *static_cast<std::int64_t**>(arguments[0]);
    for (std::uint64_t i = 0; i < *static_cast<std::uint64_t*>(arguments[1]); ++i) {
      at[i] *= static_cast<std::int64_t>(*static_cast<std::uint64_t*>(arguments[2]));
    }
  }
  calls += " ";
  return 0;
}
int cuMemcpyDtoDAsync_v2(std::uint64_t to, std::uint64_t from, std::size_t bytes, void*) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  calls += "copy ";
  return 0;
}
int cuMemAlloc_v2(std::uint64_t* made, std::size_t bytes) {
  *made = reinterpret_cast<std::uint64_t>(std::malloc(bytes));
  return 0;
}
int cuMemFree_v2(std::uint64_t address) {
  std::free(reinterpret_cast<void*>(address));
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
}
