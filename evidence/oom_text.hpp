// Reads what a training log says about memory that ran out: PyTorch's out-of-memory errors in the
// forms of torch 1.0 to 2.x, errors of the CUDA driver and its libraries, of NCCL, of the host's
// allocators, and processes that the kernel killed.
//
// In: any text: one line of an error, a whole log, several ranks interleaved, colours, Windows'
// line ends, an error quoted or wrapped by hand (log_text.hpp). Out: an event for each failure, in
// the order of the log; a failure that the log tells several times is one event. A field is absent
// where the text does not state it. Nothing is an error: a log without such a failure gives no
// event.
//
// The forms of the caching allocator, by torch's version:
//   <= 1.3    (GPU i; C total capacity; A already allocated; F free; R cached)
//   <= 2.0    the same with "R reserved in total by PyTorch" and, under
//             set_per_process_memory_fraction, "X allowed"
//   2.1       GPU i has a total capacty of C of which F is free. (the typing error is torch's)
//   >= 2.2    ... capacity of ...; both with: Process P has M memory in use. Including non-PyTorch
//             memory, this process has M memory in use. X allowed; Of the allocated memory A is
//             allocated by PyTorch, with G allocated in private pools (e.g., CUDA Graphs), and R is
//             reserved by PyTorch but unallocated.
// Source: pytorch c10/cuda/CUDACachingAllocator.cpp:DeviceCachingAllocator::malloc of 1.13 and 2.6,
// and users' logs.   Checked by tests/unit/evidence/oom_text_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.hpp"
#include "base/json.hpp"
#include "evidence/log_text.hpp"
#include "evidence/text_scanner.hpp"

namespace zeroplan::evidence {

enum class OomKind {
  gpu_allocator,   // PyTorch's caching allocator: the only one that states sizes
  gpu_driver,      // CUDA refused an allocation
  gpu_library,     // cuBLAS, cuDNN or another library found no memory for itself
  nccl,            // NCCL found none for its buffers
  host_allocator,  // malloc, Python
  host_pinned,     // page-locked memory of the host, which CUDA hands out
  host_killed,     // SIGKILL: nearly always the kernel's OOM killer or a cgroup's limit
  shared_memory,   // SIGBUS: /dev/shm is too small
};
inline constexpr EnumNames<OomKind, 8> kOomKindNames{{"gpu_allocator",
                                                      "gpu_driver",
                                                      "gpu_library",
                                                      "nccl",
                                                      "host_allocator",
                                                      "host_pinned",
                                                      "host_killed",
                                                      "shared_memory"}};

// Another process on the same GPU.
struct OomProcess {
  std::int64_t pid = 0;
  std::optional<PrintedSize> memory;
  friend bool operator==(const OomProcess&, const OomProcess&) = default;
};

struct OomEvent {
  OomKind kind = OomKind::gpu_allocator;
  int line = 0;             // of the log, from 1, where it is first told
  int times = 1;            // how often it is told
  std::optional<int> rank;  // of the label of the line, or in the text
  std::optional<int> gpu;   // as the process counts them (CUDA_VISIBLE_DEVICES)
  std::optional<std::int64_t> pid;
  std::optional<PrintedSize> tried;     // the segment asked for: the request, rounded up
  std::optional<PrintedSize> capacity;  // of the GPU as CUDA sees it
  std::optional<PrintedSize> free;      // of the GPU
  std::optional<PrintedSize> limit;     // set_per_process_memory_fraction: "allowed"
  std::optional<PrintedSize> process;   // all of this process, with context and libraries
  std::optional<PrintedSize> allocated;
  std::optional<PrintedSize> private_pools;         // CUDA graphs; not part of `allocated` then
  std::optional<PrintedSize> reserved;              // torch <= 2.0: in total
  std::optional<PrintedSize> reserved_unallocated;  // torch >= 2.1
  std::vector<OomProcess> other_processes;
  std::optional<PrintedSize> host_resident;  // of a killed process, from the kernel's log
  bool expandable_segments = false;          // the log shows that they are on
};

std::vector<OomEvent> read_oom_text(std::string_view text);
// The same of a log that was taken apart already.
std::vector<OomEvent> read_oom_text(const std::vector<LogText>& logs);

// Whether the host's memory ran out, not a GPU's.
bool is_of_host(OomKind kind);

// All that PyTorch's allocator held: as stated, or allocated + private pools + unallocated.
std::optional<PrintedSize> total_reserved(const OomEvent& event);

// {"kind":"gpu_allocator","line":3,"tried_bytes":...}; absent fields are left out.
Json to_json(const OomEvent& event);

}  // namespace zeroplan::evidence
