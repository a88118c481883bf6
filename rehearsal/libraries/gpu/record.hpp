// What was put on the GPU's streams: counted, and written down where somebody asked for it.
//
// A line of the file (ZEROPLAN_GPU_WORK) is KIND, stream, nanoseconds and what the kind says,
// between tabs:
// - kernel GRID BLOCK SHARED-BYTES NAME
// - product TYPE TRANSPOSES M N K BATCH
// - collective NAME BYTES RANKS GROUPED
// - copy KIND BYTES PLACE: between GPU, pinned, elsewhere
// - memset BYTES
// - host: a function of the host, which runs in the stream
// - event NUMBER: recorded on the stream
// - wait NUMBER: the stream waits for the event
// - sync event NUMBER, stream, device: the host waits
// - mark PHASE: ends here
// - op, op_end: an operation of torch, around what it launches (rehearsal/python, operations.py)
// - cpu BYTES, adam PARAMETERS: passes over the host's memory that were left out, CPU Adam
// - file HANDLE read|write BYTES BLOCK DEPTH THREADS: DeepSpeed's asynchronous I/O begins one
// - file_wait HANDLE: the host waits for all of them
// Nanoseconds are the calling thread's own time since its line before: of the processor, so that
// waiting and other programs do not count, and without what writing and the rehearsal's Python
// take. Names of kernels are the linker's, cut off. Types are those of the library that was called.
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

namespace zeroplan::gpu {

enum class Work { kernel, product, collective, copy, memset, host_function };
constexpr std::size_t kWorkKinds = 6;

class Record {
 public:
  // `file` is empty where nobody wants lines; %p in it becomes the process's number.
  explicit Record(std::string file);
  // From now on, for a process that was forked and is another run. Kernels that were loaded before
  // anybody wanted lines have no names.
  void write_to(std::string file);

  bool writes() const { return file_ != nullptr; }
  // The thread's next line counts its time until now: what follows is the record's own work.
  void stop_clock();
  // Of this thread, until the next line: time that the program would not take on a GPU.
  void leave_out(std::uint64_t nanoseconds);
  void count(Work kind) { ++counts_[static_cast<std::size_t>(kind)]; }
  std::size_t counted(Work kind) const { return counts_[static_cast<std::size_t>(kind)]; }
  void write(const char* kind, std::size_t stream, const char* text);
  // A line that is no work of a stream, where lines are written; `mark` goes to the file at once.
  void note(const char* kind, const char* text);

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

// What is no work and has its order among it: events, waits. Nothing where no lines are written.
__attribute__((format(printf, 3, 4))) void note_on_stream(const char* kind,
                                                          std::size_t stream,
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

}  // namespace zeroplan::gpu
