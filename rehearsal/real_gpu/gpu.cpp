// The real GPU beneath the emulated NCCL: this process is rank r of N, the other ranks are not
// there. A collective copies on its stream what this rank has to where the others' would be, and
// holds as many multiprocessors as NCCL would until its predicted time has passed since it began.
// CUDA itself is the real one; of it the driver is asked, which every process that uses the GPU has
// loaded.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <type_traits>

#include <dlfcn.h>

#include "rehearsal/libraries/gpu/collectives.hpp"
#include "rehearsal/libraries/gpu/record.hpp"
#include "rehearsal/real_gpu/collective_times.hpp"

namespace zeroplan::gpu {
namespace {

using Pointer = std::uint64_t;        // CUdeviceptr
constexpr int kMaxDynamicShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

// A communicator's kernel on H100 and A100: a block a channel of up to 640 threads, whose registers
// and shared memory leave no room for a matrix product's block beside it. NCCL 2.28,
// src/include/device.h (NCCL_MAX_NTHREADS, ncclShmemDynamicSize).
constexpr unsigned kThreads = 640;
constexpr unsigned kShared = 96 * 1024;
constexpr unsigned kUsualChannels = 16;

// `begin` keeps the GPU's clock; `occupy` returns when so many nanoseconds have passed since.
constexpr const char* kKernels = R"(
.version 6.4
.target sm_70
.address_size 64
.visible .entry begin(.param .u64 at) {
  .reg .u64 %a, %now;
  ld.param.u64 %a, [at];
  cvta.to.global.u64 %a, %a;
  mov.u64 %now, %globaltimer;
  st.global.u64 [%a], %now;
  ret;
}
.visible .entry occupy(.param .u64 at, .param .u64 nanoseconds) {
  .reg .u64 %a, %until, %now;
  .reg .pred %early;
  ld.param.u64 %a, [at];
  cvta.to.global.u64 %a, %a;
  ld.global.u64 %until, [%a];
  ld.param.u64 %now, [nanoseconds];
  add.u64 %until, %until, %now;
again:
  mov.u64 %now, %globaltimer;
  setp.lt.u64 %early, %now, %until;
  @%early bra again;
  ret;
}
)";

// `name` multiplies whole numbers of `width` bytes (`type` of PTX), a thread each.
std::string multiplying_kernel(const std::string& name,
                               const std::string& type,
                               const std::string& width) {
  return ".visible .entry " + name + R"((.param .u64 at, .param .u64 count, .param .u64 factor) {
  .reg .u64 %a, %n, %i;
  .reg .u32 %block, %size, %thread;
  .reg .)" +
         type + R"( %v, %f;
  .reg .pred %beyond;
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %thread, %tid.x;
  mad.lo.u32 %thread, %block, %size, %thread;
  cvt.u64.u32 %i, %thread;
  ld.param.u64 %n, [count];
  setp.ge.u64 %beyond, %i, %n;
  @%beyond ret;
  ld.param.u64 %a, [at];
  cvta.to.global.u64 %a, %a;
  ld.param.)" +
         type + R"( %f, [factor];
  mad.lo.u64 %a, %i, )" +
         width + R"(, %a;
  ld.global.)" +
         type + R"( %v, [%a];
  mul.lo.)" +
         type + R"( %v, %v, %f;
  st.global.)" +
         type + R"( [%a], %v;
  ret;
}
)";
}

std::string kernels() {
  return kKernels + multiplying_kernel("multiply4", "u32", "4") +
         multiplying_kernel("multiply8", "u64", "8");
}

// The driver's functions that are asked, and the kernels above, loaded at the first collective.
class Driver {
 public:
  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    const auto find = [&](const char* name, auto& function) {
      if (library != nullptr) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      }
      if (function == nullptr) fail(name, -1);
    };
    find("cuModuleLoadData", load_);
    find("cuModuleGetFunction", get_);
    find("cuFuncSetAttribute", set_);
    find("cuLaunchKernel", launch_);
    find("cuMemcpyDtoDAsync_v2", copy_);
    find("cuMemAlloc_v2", allocate_);
    find("cuMemFree_v2", free_);
    find("cuCtxGetDevice", device_);
  }

  void launch(const char* kernel,
              unsigned blocks,
              unsigned threads,
              unsigned shared,
              void* stream,
              void** arguments) {
    check(
        "cuLaunchKernel",
        launch_(function(kernel), blocks, 1, 1, threads, 1, 1, shared, stream, arguments, nullptr));
  }
  void copy(void* to, const void* from, std::size_t bytes, void* stream) {
    check("cuMemcpyDtoDAsync",
          copy_(reinterpret_cast<Pointer>(to), reinterpret_cast<Pointer>(from), bytes, stream));
  }
  void* allocate(std::size_t bytes) {
    Pointer made = 0;
    return allocate_(&made, bytes) == 0 ? reinterpret_cast<void*>(made) : nullptr;
  }
  void free(void* address) { check("cuMemFree", free_(reinterpret_cast<Pointer>(address))); }
  int device() {
    int device = 0;
    device_(&device);
    return device;
  }
  // Where a collective of this stream keeps when it began: collectives of one stream do not
  // overlap.
  void* clock_of(void* stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    void*& at = clocks_[stream];
    if (at == nullptr) at = allocate(sizeof(std::uint64_t));
    return at;
  }

 private:
  [[noreturn]] static void fail(const char* what, int status) {
    std::fprintf(
        stderr, "zeroplan rehearse --real-gpu: %s: status %d of CUDA's driver\n", what, status);
    std::abort();
  }
  static void check(const char* what, int status) {
    if (status != 0) fail(what, status);
  }
  void* function(const char* name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (module_ == nullptr) check("cuModuleLoadData", load_(&module_, kernels().c_str()));
    void*& known = functions_[name];
    if (known == nullptr) {
      check(name, get_(&known, module_, name));
      if (std::string(name) == "occupy")
        check(name, set_(known, kMaxDynamicShared, static_cast<int>(kShared)));
    }
    return known;
  }

  int (*load_)(void**, const void*) = nullptr;
  int (*get_)(void**, void*, const char*) = nullptr;
  int (*set_)(void*, int, int) = nullptr;
  int (*launch_)(void*,
                 unsigned,
                 unsigned,
                 unsigned,
                 unsigned,
                 unsigned,
                 unsigned,
                 unsigned,
                 void*,
                 void**,
                 void**) = nullptr;
  int (*copy_)(Pointer, Pointer, std::size_t, void*) = nullptr;
  int (*allocate_)(Pointer*, std::size_t) = nullptr;
  int (*free_)(Pointer) = nullptr;
  int (*device_)(int*) = nullptr;
  std::mutex mutex_;
  void* module_ = nullptr;
  std::map<std::string, void*> functions_;
  std::map<void*, void*> clocks_;
};

Driver& driver() {
  // Never destroyed: threads of torch outlive static objects.
  static Driver* const made = new Driver;
  return *made;
}

CollectiveTimes read_times() {
  const char* const path = std::getenv("ZEROPLAN_GPU_COLLECTIVES");
  if (path == nullptr) return {};
  std::ifstream file(path);
  std::ostringstream lines;
  lines << file.rdbuf();
  return CollectiveTimes(lines.str());
}

const CollectiveTimes& times() {
  static const CollectiveTimes* const made = new CollectiveTimes(read_times());
  return *made;
}

unsigned channels() {
  const char* const text = std::getenv("ZEROPLAN_GPU_CHANNELS");
  const int said = text != nullptr ? std::atoi(text) : 0;
  return said > 0 ? static_cast<unsigned>(said) : kUsualChannels;
}

std::atomic<std::size_t> collectives{0};
std::mutex unknown_mutex;
std::map<std::string, std::size_t> unknown;

void hold_multiprocessors(std::uint64_t nanoseconds, void* stream) {
  void* at = driver().clock_of(stream);
  void* arguments[] = {&at, &nanoseconds};
  static const unsigned blocks = channels();
  driver().launch("occupy", blocks, kThreads, kShared, stream, arguments);
}

}  // namespace

void begin_collective(void* stream) {
  void* at = driver().clock_of(stream);
  void* arguments[] = {&at};
  driver().launch("begin", 1, 1, 0, stream, arguments);
}

void end_collective(const CollectiveCall& call, void* stream) {
  ++collectives;
  // What is launched together takes as long as one collective of all bytes.
  static thread_local std::size_t together = 0;
  const std::size_t before = call.joins ? together : 0;
  together = before + call.bytes;
  const std::uint64_t all = times().nanoseconds(call.name, call.ranks, together);
  const std::uint64_t had = before > 0 ? times().nanoseconds(call.name, call.ranks, before) : 0;
  if (all > had) hold_multiprocessors(all - had, stream);
}

bool carries(std::size_t) { return true; }

void carry(void* to, const void* from, std::size_t bytes, void* stream) {
  if (bytes > 0 && to != nullptr && from != nullptr && to != from)
    driver().copy(to, from, bytes, stream);
}

void multiply_whole_numbers(
    void* at, std::size_t count, std::size_t width, int factor, void* stream) {
  if (at == nullptr || count == 0) return;
  std::uint64_t numbers = count, times = static_cast<std::uint64_t>(factor);
  void* arguments[] = {&at, &numbers, &times};
  constexpr std::size_t kBlock = 256;
  driver().launch(width == 4 ? "multiply4" : "multiply8",
                  static_cast<unsigned>((count + kBlock - 1) / kBlock),
                  kBlock,
                  0,
                  stream,
                  arguments);
}

void* allocate_on_gpu(std::size_t bytes) { return driver().allocate(bytes); }
void free_on_gpu(void* address) { driver().free(address); }

int current_device() { return driver().device(); }

}  // namespace zeroplan::gpu

// For Python (rehearsal/python/zeroplan_rehearsal/gpu.py): what the emulated GPU says of itself, as
// far as it is known here.
extern "C" {

std::size_t zeroplan_gpu_number(const char* name) {
  return std::string(name) == "collectives" ? zeroplan::gpu::collectives.load() : 0;
}
std::size_t zeroplan_gpu_unknown(char* text, std::size_t room) {
  std::string names;
  const std::lock_guard<std::mutex> lock(zeroplan::gpu::unknown_mutex);
  for (const auto& [name, calls] : zeroplan::gpu::unknown) names += name + " ";
  if (room > 0) std::snprintf(text, room, "%s", names.c_str());
  return names.size();
}
void zeroplan_gpu_unknown_called(const char* name) {
  const std::lock_guard<std::mutex> lock(zeroplan::gpu::unknown_mutex);
  ++zeroplan::gpu::unknown[name];
}
void zeroplan_gpu_note(const char*, const char*) {}
int zeroplan_gpu_writes() { return 0; }
void zeroplan_gpu_leave_out(std::uint64_t) {}
void zeroplan_gpu_read_settings() {}
void zeroplan_gpu_lock(std::size_t) {}
void zeroplan_gpu_unlock(std::size_t) {}
}
