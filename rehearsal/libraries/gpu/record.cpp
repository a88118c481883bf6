#include "rehearsal/libraries/gpu/record.hpp"

#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <utility>

#include <unistd.h>

#include "rehearsal/libraries/gpu/memory.hpp"
#include "rehearsal/libraries/gpu/settings.hpp"
#include "rehearsal/libraries/gpu/streams.hpp"

namespace zeroplan::gpu {
namespace {

constexpr const char* kWorkNames[kWorkKinds] = {
    "kernel", "product", "collective", "copy", "memset", "host"};

constexpr std::size_t kLongestLine = 192;

// CUDA's own handles: 0 the null stream, 1 its legacy form, 2 the thread's.
constexpr std::uintptr_t kFirstHandle = 4096;
// torch from 2.12 takes a handle for a pointer, whose lowest bits are clear.
constexpr std::uintptr_t kBetweenHandles = 64;

thread_local int thread_device = 0;

// The calling thread's time on a processor.
std::uint64_t thread_nanoseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  constexpr std::uint64_t kNanoseconds = 1'000'000'000;
  return static_cast<std::uint64_t>(time.tv_sec) * kNanoseconds +
         static_cast<std::uint64_t>(time.tv_nsec);
}

// When this thread's last line was written, and what is not to be counted since then.
thread_local std::uint64_t last_line = 0;
thread_local std::uint64_t left_out = 0;
thread_local std::uint64_t stopped = 0;  // 0: the clock runs

}  // namespace

Record::Record(std::string file) { write_to(std::move(file)); }

void Record::write_to(std::string file) {
  if (file_ != nullptr) std::fclose(file_);
  file_ = nullptr;
  if (file.empty()) return;
  const std::size_t at = file.find("%p");
  if (at != std::string::npos) file.replace(at, 2, std::to_string(getpid()));
  file_ = std::fopen(file.c_str(), "w");
  if (file_ == nullptr) std::perror(("zeroplan rehearse: " + file).c_str());
}

void Record::stop_clock() {
  if (stopped == 0) stopped = thread_nanoseconds();
}

void Record::leave_out(std::uint64_t nanoseconds) { left_out += nanoseconds; }

void Record::write(const char* kind, std::size_t stream, const char* text) {
  stop_clock();
  const std::uint64_t spent = stopped - last_line;
  const std::uint64_t own = spent > left_out ? spent - left_out : 0;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    std::fprintf(
        file_, "%s\t%zu\t%llu\t%s\n", kind, stream, static_cast<unsigned long long>(own), text);
  }
  left_out = 0;
  stopped = 0;
  last_line = thread_nanoseconds();
}

void Record::note(const char* kind, const char* text) {
  if (file_ == nullptr) return;
  write(kind, 0, text);
  if (std::strcmp(kind, "mark") == 0) std::fflush(file_);
}

void Record::name_kernel(const void* function, const char* name) {
  if (file_ == nullptr) return;
  const std::lock_guard<std::mutex> guard(mutex_);
  kernels_[function] = name;
}

std::string Record::kernel_name(const void* function) const {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto found = kernels_.find(function);
  return found == kernels_.end() ? "?" : found->second;
}

void Record::called_unknown(const char* name) {
  const std::lock_guard<std::mutex> guard(mutex_);
  ++unknown_[name];
}

std::string Record::unknown_names() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  std::string names;
  for (const auto& [name, times] : unknown_) names += (names.empty() ? "" : " ") + name;
  return names;
}

Record& record() {
  static Record* const made = new Record(settings().work_file);
  return *made;
}

void enqueue(Work kind, void* stream, const char* format, ...) {
  const std::size_t number = stream_number(stream);
  record().count(kind);
  streams().enqueue(number);
  if (!record().writes()) return;
  record().stop_clock();
  char text[kLongestLine];
  va_list list;
  va_start(list, format);
  std::vsnprintf(text, sizeof text, format, list);
  va_end(list);
  record().write(kWorkNames[static_cast<std::size_t>(kind)], number, text);
}

void note_on_stream(const char* kind, std::size_t stream, const char* format, ...) {
  if (!record().writes()) return;
  record().stop_clock();
  char text[kLongestLine];
  va_list list;
  va_start(list, format);
  std::vsnprintf(text, sizeof text, format, list);
  va_end(list);
  record().write(kind, stream, text);
}

std::size_t stream_number(void* handle) {
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  return number < kFirstHandle ? Streams::kDefault : (number - kFirstHandle) / kBetweenHandles;
}

void* stream_handle(std::size_t number) {
  return reinterpret_cast<void*>(kFirstHandle + number * kBetweenHandles);
}

int current_device() { return thread_device; }
void set_current_device(int device) { thread_device = device; }

void copy_values(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0 || bytes > kMostCopied || to == nullptr || from == nullptr || to == from) return;
  std::memmove(to, from, bytes);
}

}  // namespace zeroplan::gpu

// For Python, by ctypes, and for the functions that exist for the linker's sake.
extern "C" {

std::size_t zeroplan_gpu_number(const char* name) {
  using zeroplan::gpu::Work;
  const std::string wanted = name;
  const auto& record = zeroplan::gpu::record();
  const int device = zeroplan::gpu::current_device();
  const zeroplan::gpu::GpuUse use = zeroplan::gpu::memory().use(device);
  const std::pair<const char*, std::size_t> numbers[] = {
      {"used", use.used},
      {"peak", use.peak},
      {"allocations", use.allocations},
      {"frees", use.frees},
      {"refused", use.refused},
      {"pinned", zeroplan::gpu::memory().pinned().used},
      {"pinned_peak", zeroplan::gpu::memory().pinned().peak},
      {"kernels", record.counted(Work::kernel)},
      {"products", record.counted(Work::product)},
      {"collectives", record.counted(Work::collective)},
      {"copies", record.counted(Work::copy)},
  };
  for (const auto& [known, value] : numbers) {
    if (wanted == known) return value;
  }
  return 0;
}

// The text's length; so much of it as there is room for, ended by 0.
std::size_t zeroplan_gpu_unknown(char* text, std::size_t room) {
  const std::string names = zeroplan::gpu::record().unknown_names();
  if (room > 0) std::snprintf(text, room, "%s", names.c_str());
  return names.size();
}

void zeroplan_gpu_note(const char* kind, const char* text) {
  zeroplan::gpu::record().note(kind, text);
}
int zeroplan_gpu_writes() { return zeroplan::gpu::record().writes() ? 1 : 0; }
void zeroplan_gpu_leave_out(std::uint64_t nanoseconds) {
  zeroplan::gpu::record().leave_out(nanoseconds);
}

// A process that forked before it used the GPU: with its own settings, and lines of its own.
void zeroplan_gpu_read_settings() {
  zeroplan::gpu::read_settings_again();
  zeroplan::gpu::record().write_to(zeroplan::gpu::settings().work_file);
}

void zeroplan_gpu_lock(std::size_t bytes) { zeroplan::gpu::memory().lock(bytes); }
void zeroplan_gpu_unlock(std::size_t bytes) { zeroplan::gpu::memory().unlock(bytes); }

void zeroplan_gpu_unknown_called(const char* name) { zeroplan::gpu::record().called_unknown(name); }
}
