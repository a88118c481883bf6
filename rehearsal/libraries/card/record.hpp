// What was put on the card's streams: counted, and written down where somebody asked for it.
//
// A line of the file (ZEROPLAN_CARD_WORK) is KIND, stream and what the kind says, between tabs:
//   kernel  NAME GRID BLOCK SHARED-BYTES    copy  KIND BYTES    memset  BYTES
//   product TYPE TRANSPOSES M N K BATCH     collective  NAME BYTES RANKS
// Names of kernels are the linker's. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

namespace zeroplan::card {

enum class Work { kernel, product, collective, copy, memset, host_function };
constexpr std::size_t kWorkKinds = 6;

class Record {
 public:
  // `file` is empty where nobody wants lines; %p in it becomes the process's number.
  explicit Record(std::string file);

  bool writes() const { return file_ != nullptr; }
  void count(Work kind) { ++counts_[static_cast<std::size_t>(kind)]; }
  std::size_t counted(Work kind) const { return counts_[static_cast<std::size_t>(kind)]; }
  void write(Work kind, std::size_t stream, const char* text);
  // A line that is no work: which phase of the program begins.
  void mark(const char* text);

  void name_kernel(const void* function, const char* name);
  std::string kernel_name(const void* function) const;

  // A function that exists for the linker's sake was called: what it should have done was not done.
  void called_unknown(const char* name);
  std::string unknown_names() const;  // between spaces

 private:
  mutable std::mutex mutex_;
  std::array<std::atomic<std::size_t>, kWorkKinds> counts_{};
  std::FILE* file_ = nullptr;
  std::unordered_map<const void*, std::string> kernels_;
  std::map<std::string, std::size_t> unknown_;
};

// The process's own.
Record& record();

// Counts a piece of work, puts it on its stream and writes it down; `format` as printf's.
__attribute__((format(printf, 3, 4))) void enqueue(Work kind,
                                                   void* stream,
                                                   const char* format,
                                                   ...);

// CUDA's handle of a stream as the number of `streams()`, and the other way.
std::size_t stream_number(void* handle);
void* stream_handle(std::size_t number);

// The thread's current device.
int current_device();
void set_current_device(int device);

// Copies what is small enough to hold values that a program may look at; the rest stays as it is.
void copy_values(void* to, const void* from, std::size_t bytes);
constexpr std::size_t kMostCopied = 65536;

}  // namespace zeroplan::card
