#include "evidence/oom_text.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "evidence/log_text.hpp"

namespace zeroplan::evidence {
namespace {

using Field = std::optional<PrintedSize> OomEvent::*;

std::optional<PrintedSize> known_size(const TextScanner::Size& size) {
  return size.known ? std::optional(size.size) : std::nullopt;
}

// --- PyTorch's caching allocator: clauses behind "out of memory. Tried to allocate SIZE"

// Clauses "words SIZE words": where words in front are empty, the size comes first.
struct Clause {
  std::string_view front;
  std::string_view behind;
  Field field;
};

constexpr std::array kClauses = {
    Clause{"", "total capacity", &OomEvent::capacity},
    Clause{"", "already allocated", &OomEvent::allocated},
    Clause{"", "allocated;", &OomEvent::allocated},  // as people copy it
    Clause{"", "free", &OomEvent::free},
    Clause{"", "allowed", &OomEvent::limit},
    Clause{"", "reserved in total by PyTorch", &OomEvent::reserved},
    Clause{"", "cached", &OomEvent::reserved},
    Clause{"has a total capacity of", "", &OomEvent::capacity},
    Clause{"has a total capacty of", "", &OomEvent::capacity},
    Clause{"of which", "is free", &OomEvent::free},
    Clause{"Including non-PyTorch memory, this process has", "memory in use", &OomEvent::process},
    Clause{"Of the allocated memory", "is allocated by PyTorch", &OomEvent::allocated},
    Clause{"with", "allocated in private pools (e.g., CUDA Graphs)", &OomEvent::private_pools},
    Clause{"with", "allocated in private pools (e.g., HIP Graphs)", &OomEvent::private_pools},
    Clause{"and", "is reserved by PyTorch but unallocated", &OomEvent::reserved_unallocated},
};

bool take_clause(TextScanner& scanner, const Clause& clause, OomEvent& event) {
  TextScanner ahead = scanner;
  if (!clause.front.empty() && !ahead.take(clause.front)) return false;
  const std::optional<TextScanner::Size> size = ahead.size();
  if (!size || (!clause.behind.empty() && !ahead.take(clause.behind))) return false;
  event.*clause.field = known_size(*size);
  scanner = ahead;
  return true;
}

// "GPU 0"; torch 2.3 printed no number. NPU and XPU builds name their own device.
bool take_device(TextScanner& scanner, OomEvent& event) {
  for (const std::string_view device : {"GPU", "NPU", "XPU"}) {
    if (!scanner.take(device)) continue;
    constexpr std::int64_t kMostGpus = 1024;
    TextScanner ahead = scanner;
    const std::optional<std::int64_t> index = ahead.integer();
    if (index && *index >= 0 && *index < kMostGpus) {
      event.gpu = static_cast<int>(*index);
      scanner = ahead;
    }
    return true;
  }
  return false;
}

// "Process 62201 has 398.00 MiB memory in use"
bool take_process(TextScanner& scanner, OomEvent& event) {
  TextScanner ahead = scanner;
  if (!ahead.take("Process ")) return false;
  const std::optional<std::int64_t> pid = ahead.integer();
  if (!pid || !ahead.take("has")) return false;
  const std::optional<TextScanner::Size> size = ahead.size();
  if (!size || !ahead.take("memory in use")) return false;
  event.other_processes.push_back({*pid, known_size(*size)});
  scanner = ahead;
  return true;
}

// In a container PyTorch knows itself by another number than the driver does, so it names itself as
// "Process N has M memory in use": the one whose memory is what PyTorch reserved and a context with
// libraries. Only where nothing says "this process has". The nearest to a usual context, if
// several.
void take_own_process(OomEvent& event) {
  constexpr Bytes kLeast = Bytes::mib(150), kUsual = Bytes::mib(500), kMost = Bytes::gib(3);
  const std::optional<PrintedSize> reserved = total_reserved(event);
  if (event.process || !reserved) return;
  const auto outside = [&](const OomProcess& process) -> std::optional<Bytes> {
    if (!process.memory) return std::nullopt;
    const Bytes rounding = process.memory->rounding + reserved->rounding;
    if (process.memory->bytes + rounding < reserved->bytes + kLeast) return std::nullopt;
    const Bytes rest = process.memory->bytes - std::min(process.memory->bytes, reserved->bytes);
    if (rest > kMost) return std::nullopt;
    return rest > kUsual ? rest - kUsual : kUsual - rest;
  };
  auto own = event.other_processes.end();
  for (auto process = event.other_processes.begin(); process != event.other_processes.end();
       ++process) {
    const auto far = outside(*process);
    if (far && (own == event.other_processes.end() || *far < *outside(*own))) own = process;
  }
  if (own == event.other_processes.end()) return;
  event.process = own->memory;
  event.pid = own->pid;
  event.other_processes.erase(own);
}

// Everything behind "Tried to allocate". The clauses stand in a fixed order in each version, but
// which are there differs, so each is taken where it comes.
OomEvent read_allocator(TextScanner scanner) {
  OomEvent event;
  event.kind = OomKind::gpu_allocator;
  if (const auto tried = scanner.size()) event.tried = known_size(*tried);
  constexpr std::string_view kBetween = ".,;()";
  while (true) {
    scanner.skip_any(kBetween);
    if (take_device(scanner, event) || take_process(scanner, event)) continue;
    const bool found = std::any_of(kClauses.begin(), kClauses.end(), [&](const Clause& clause) {
      return take_clause(scanner, clause, event);
    });
    if (found) continue;
    take_own_process(event);
    return event;
  }
}

// --- the others

OomEvent of_kind(OomKind kind) {
  OomEvent event;
  event.kind = kind;
  return event;
}

// "host:4711:4713 [2] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes"
OomEvent read_nccl(const LogText& log, std::size_t at, TextScanner behind) {
  OomEvent event = of_kind(OomKind::nccl);
  behind.take("async");
  if (const auto size = behind.size()) event.tried = known_size(*size);
  const std::string_view line = log.line_around(at);
  const std::size_t warn = find_words(line, "NCCL WARN");
  const std::size_t open = line.substr(0, warn).rfind(" [");
  if (warn == std::string_view::npos || open == std::string_view::npos) return event;
  TextScanner device(line, open + 2);
  const std::optional<std::int64_t> index = device.integer();
  constexpr std::int64_t kMostGpus = 1024;
  if (index && *index >= 0 && *index < kMostGpus && device.take("]")) {
    event.gpu = static_cast<int>(*index);
  }
  const std::size_t colon = line.find(':');
  if (const auto pid = TextScanner(line, std::min(colon, line.size() - 1) + 1).integer()) {
    event.pid = *pid;
  }
  return event;
}

// "DefaultCPUAllocator: can't allocate memory: you tried to allocate 2359296 bytes."
OomEvent read_host_allocator(TextScanner behind, OomKind kind) {
  OomEvent event = of_kind(kind);
  if (const auto size = behind.size()) event.tried = known_size(*size);
  return event;
}

std::optional<std::int64_t> number_behind_words(std::string_view line, std::string_view words) {
  const std::size_t at = find_words(line, words);
  if (at == std::string_view::npos) return std::nullopt;
  TextScanner scanner(line, at);
  scanner.take(words);
  scanner.skip_any(":=");
  return scanner.integer();
}

// A rank or pid in the same line: "failed (exitcode: -9) local_rank: 1 (pid: 91820)", "Signal 9
// (SIGKILL) received by PID 14750", "Killed process 4711 (python) ... anon-rss:1024kB".
OomEvent read_killed(const LogText& log, std::size_t at, OomKind kind) {
  OomEvent event = of_kind(kind);
  const std::string_view line = log.line_around(at);
  constexpr std::int64_t kMostRank = 1'000'000;
  const std::optional<std::int64_t> rank = number_behind_words(line, "local_rank:");
  if (rank && *rank >= 0 && *rank < kMostRank) event.rank = static_cast<int>(*rank);
  for (const std::string_view words : {"(pid:", "by PID ", "Killed process ", "Kill process "}) {
    if (const auto pid = number_behind_words(line, words)) {
      event.pid = *pid;
      break;
    }
  }
  const std::size_t resident = find_words(line, "anon-rss:");
  if (resident != std::string_view::npos) {
    TextScanner scanner(line, resident);
    scanner.take("anon-rss:");
    if (const auto size = scanner.size()) event.host_resident = known_size(*size);
  }
  return event;
}

// What opens the telling of a failure.
struct OomOpening {
  std::string_view words;
  OomKind kind;
};

// What a shell prints of a program that was killed, and Python of one that got no memory; they
// count as lines of their own alone.
constexpr std::string_view kBareKilled = "Killed";
constexpr std::string_view kBareMemoryError = "MemoryError";

constexpr std::array kOomOpenings = {
    OomOpening{"out of memory. Tried to allocate", OomKind::gpu_allocator},
    OomOpening{"per_process_memory_fraction limit. Requested size:", OomKind::gpu_allocator},
    OomOpening{"CUDA error: out of memory", OomKind::gpu_driver},
    OomOpening{"HIP error: out of memory", OomKind::gpu_driver},
    OomOpening{"CUDA driver error: out of memory", OomKind::gpu_driver},
    OomOpening{"cuda runtime error (2) : out of memory", OomKind::gpu_driver},
    OomOpening{"Triton Error [CUDA]: out of memory", OomKind::gpu_driver},
    OomOpening{"CUDA_ERROR_OUT_OF_MEMORY", OomKind::gpu_driver},
    OomOpening{"CUBLAS_STATUS_ALLOC_FAILED", OomKind::gpu_library},
    OomOpening{"CUDNN_STATUS_ALLOC_FAILED", OomKind::gpu_library},
    OomOpening{"CUSOLVER_STATUS_ALLOC_FAILED", OomKind::gpu_library},
    OomOpening{"CUSPARSE_STATUS_ALLOC_FAILED", OomKind::gpu_library},
    OomOpening{"Cuda failure 'out of memory'", OomKind::nccl},
    OomOpening{"Cuda failure 2 'out of memory'", OomKind::nccl},
    OomOpening{"Failed to CUDA calloc", OomKind::nccl},
    OomOpening{"Failed to CUDA malloc", OomKind::nccl},
    OomOpening{"can't allocate memory: you tried to allocate", OomKind::host_allocator},
    OomOpening{"not enough memory: you tried to allocate", OomKind::host_allocator},
    OomOpening{"[Errno 12] Cannot allocate memory", OomKind::host_allocator},
    OomOpening{"ArrayMemoryError: Unable to allocate", OomKind::host_allocator},
    OomOpening{kBareMemoryError, OomKind::host_allocator},
    OomOpening{"Failed to CUDA host alloc", OomKind::host_pinned},
    OomOpening{"cudaHostAlloc out of memory", OomKind::host_pinned},
    OomOpening{"cudaHostAlloc failed", OomKind::host_pinned},
    OomOpening{"cudaHostRegister failed", OomKind::host_pinned},
    OomOpening{"cudaMallocHost failed", OomKind::host_pinned},
    OomOpening{"std::bad_alloc", OomKind::host_allocator},
    OomOpening{"exits with return code = -9", OomKind::host_killed},
    OomOpening{"exitcode: -9", OomKind::host_killed},
    OomOpening{"exitcode : -9", OomKind::host_killed},
    OomOpening{"exit code -9", OomKind::host_killed},
    OomOpening{"exit code: -9", OomKind::host_killed},
    OomOpening{"exit code 137", OomKind::host_killed},
    OomOpening{"exit code: 137", OomKind::host_killed},
    OomOpening{"exited with code 137", OomKind::host_killed},
    OomOpening{"Signal 9 (SIGKILL) received by PID", OomKind::host_killed},
    OomOpening{"died with <Signals.SIGKILL: 9>", OomKind::host_killed},
    OomOpening{"Out of memory: Kill", OomKind::host_killed},
    OomOpening{"oom-kill event", OomKind::host_killed},
    OomOpening{"oom_kill event", OomKind::host_killed},
    OomOpening{"OOMKilled", OomKind::host_killed},
    OomOpening{"is killed by signal: Killed", OomKind::host_killed},
    OomOpening{"terminated with signal SIGKILL", OomKind::host_killed},
    OomOpening{"killed by the cgroup out-of-memory handler", OomKind::host_killed},
    OomOpening{"Exceeded job memory limit", OomKind::host_killed},
    OomOpening{"low on resource: memory", OomKind::host_killed},
    OomOpening{"Killed python", OomKind::host_killed},  // as a shell says it of a script's line
    OomOpening{"Killed torchrun", OomKind::host_killed},
    OomOpening{"Killed deepspeed", OomKind::host_killed},
    OomOpening{"Killed accelerate", OomKind::host_killed},
    OomOpening{"Killed llamafactory-cli", OomKind::host_killed},
    OomOpening{"Killed swift", OomKind::host_killed},
    OomOpening{kBareKilled, OomKind::host_killed},
    OomOpening{"exits with return code = -7", OomKind::shared_memory},
    OomOpening{"exitcode: -7", OomKind::shared_memory},
    OomOpening{"exitcode : -7", OomKind::shared_memory},
    OomOpening{"Signal 7 (SIGBUS) received by PID", OomKind::shared_memory},
    OomOpening{"insufficient shared memory (shm)", OomKind::shared_memory},
    OomOpening{"Bus error (core dumped)", OomKind::shared_memory},
    OomOpening{"is killed by signal: Bus error", OomKind::shared_memory},
};

bool is_decimal(char c) { return c >= '0' && c <= '9'; }

// Whether the traceback above ends in pin_memory(): the driver's error names no place. Python may
// mark a part of the line in a line of its own.
bool pins_memory(const LogText& log, std::size_t at) {
  constexpr int kLinesAbove = 2;
  std::size_t begin = at;
  for (int i = 0; i <= kLinesAbove && begin != std::string::npos && begin > 0; ++i) {
    begin = log.text.rfind('\n', begin - 1);
  }
  if (begin == std::string::npos) begin = 0;
  return log.text.substr(begin, at - begin).find("pin_memory(") != std::string::npos;
}

OomEvent read_event(const LogText& log, std::size_t at, const OomOpening& opening) {
  TextScanner behind(log.text, at);
  behind.take(opening.words);
  OomEvent event;
  switch (opening.kind) {
    case OomKind::gpu_allocator:
      event = read_allocator(behind);
      break;
    case OomKind::nccl:
      event = read_nccl(log, at, behind);
      break;
    case OomKind::host_allocator:
    case OomKind::host_pinned:
      event = read_host_allocator(behind, opening.kind);
      break;
    case OomKind::host_killed:
    case OomKind::shared_memory:
      event = read_killed(log, at, opening.kind);
      break;
    case OomKind::gpu_driver:
      event = of_kind(pins_memory(log, at) ? OomKind::host_pinned : OomKind::gpu_driver);
      break;
    default:
      event = of_kind(opening.kind);
  }
  event.line = log.line_at(at);
  if (!event.rank) event.rank = log.rank;
  return event;
}

// Whether an opening that ends with a number does: "return code = -9" and not -95; whether one that
// is a whole line is.
bool ends_there(const LogText& log,
                std::size_t at,
                const TextScanner& behind,
                std::string_view words) {
  if (words == kBareKilled || words == kBareMemoryError) return log.line_around(at) == words;
  const std::string_view text = log.text;
  return !is_decimal(words.back()) || behind.at_end() || !is_decimal(text[behind.at()]);
}

// Openings by their first character, in both cases: one pass over a log of many megabytes.
using OpeningsByFirst = std::array<std::vector<const OomOpening*>, 256>;

OpeningsByFirst openings_by_first() {
  OpeningsByFirst table;
  for (const OomOpening& opening : kOomOpenings) {
    const auto first = static_cast<unsigned char>(opening.words.front());
    table[static_cast<std::size_t>(std::tolower(first))].push_back(&opening);
    if (std::tolower(first) != std::toupper(first)) {
      table[static_cast<std::size_t>(std::toupper(first))].push_back(&opening);
    }
  }
  return table;
}

std::vector<OomEvent> events_of(const LogText& log, const OpeningsByFirst& openings) {
  std::vector<OomEvent> events;
  for (std::size_t at = 0; at < log.text.size(); ++at) {
    for (const OomOpening* opening : openings[static_cast<unsigned char>(log.text[at])]) {
      TextScanner scanner(log.text, at);
      if (!scanner.take(opening->words) || !ends_there(log, at, scanner, opening->words)) {
        continue;
      }
      events.push_back(read_event(log, at, *opening));
    }
  }
  return events;
}

// --- one event for one failure

template <typename Value>
bool agree(const std::optional<Value>& a, const std::optional<Value>& b) {
  return !a || !b || *a == *b;
}

constexpr std::array<Field, 10> kSizes = {&OomEvent::tried,
                                          &OomEvent::capacity,
                                          &OomEvent::free,
                                          &OomEvent::limit,
                                          &OomEvent::process,
                                          &OomEvent::allocated,
                                          &OomEvent::private_pools,
                                          &OomEvent::reserved,
                                          &OomEvent::reserved_unallocated,
                                          &OomEvent::host_resident};

// A traceback is printed by the logger and again by Python; launchers tell an exit code three
// times. The allocator's errors state enough to be told apart; of the others the later telling may
// add what the first lacks.
bool same_failure(const OomEvent& a, const OomEvent& b) {
  if (a.kind != b.kind || !agree(a.rank, b.rank) || !agree(a.gpu, b.gpu) || !agree(a.pid, b.pid)) {
    return false;
  }
  if (a.kind == OomKind::gpu_allocator && a.other_processes != b.other_processes) return false;
  return std::all_of(kSizes.begin(), kSizes.end(), [&](Field field) {
    return a.kind == OomKind::gpu_allocator ? a.*field == b.*field : agree(a.*field, b.*field);
  });
}

void merge(OomEvent& into, const OomEvent& from) {
  into.times += from.times;
  if (!into.rank) into.rank = from.rank;
  if (!into.gpu) into.gpu = from.gpu;
  if (!into.pid) into.pid = from.pid;
  for (const Field field : kSizes) {
    if (!(into.*field)) into.*field = from.*field;
  }
}

// How far back a telling is looked for: a job of some thousand ranks tells each failure at once.
constexpr std::ptrdiff_t kWindow = 64;

std::vector<OomEvent> merged(std::vector<OomEvent> events) {
  std::stable_sort(events.begin(), events.end(), [](const OomEvent& a, const OomEvent& b) {
    return a.line < b.line;
  });
  std::vector<OomEvent> failures;
  for (OomEvent& event : events) {
    const auto newest = failures.rbegin();
    const auto oldest = newest + std::min(kWindow, static_cast<std::ptrdiff_t>(failures.size()));
    const auto known = std::find_if(
        newest, oldest, [&](const OomEvent& failure) { return same_failure(failure, event); });
    if (known != oldest) {
      merge(*known, event);
    } else {
      failures.push_back(std::move(event));
    }
  }
  return failures;
}

// Whether the log shows that they are on: the error's own advice ("try setting ...") does not.
bool sets_expandable_segments(std::string_view text) {
  constexpr std::string_view kWords = "expandable_segments:True";
  for (std::size_t at = find_words(text, kWords); at != std::string_view::npos;
       at = find_words(text, kWords, at + kWords.size())) {
    const std::size_t line = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
    const std::size_t begin = line == std::string_view::npos ? 0 : line + 1;
    if (find_words(text.substr(begin, at - begin), "setting ") == std::string_view::npos)
      return true;
  }
  return false;
}

}  // namespace

std::vector<OomEvent> read_oom_text(std::string_view text) {
  return read_oom_text(split_log(std::string(text)));
}

std::vector<OomEvent> read_oom_text(const std::vector<LogText>& logs) {
  std::vector<OomEvent> events;
  const OpeningsByFirst openings = openings_by_first();
  for (const LogText& log : logs) {
    for (OomEvent& event : events_of(log, openings)) events.push_back(std::move(event));
  }
  std::vector<OomEvent> failures = merged(std::move(events));
  const bool expandable = std::any_of(logs.begin(), logs.end(), [](const LogText& log) {
    return sets_expandable_segments(log.text);
  });
  for (OomEvent& failure : failures) failure.expandable_segments = expandable;
  return failures;
}

bool is_of_host(OomKind kind) {
  return kind == OomKind::host_allocator || kind == OomKind::host_pinned ||
         kind == OomKind::host_killed;
}

std::optional<PrintedSize> total_reserved(const OomEvent& event) {
  if (event.reserved) return event.reserved;
  if (!event.allocated || !event.reserved_unallocated) return std::nullopt;
  PrintedSize total = *event.allocated;
  for (const auto& part : {event.private_pools, event.reserved_unallocated}) {
    if (!part) continue;
    total.bytes += part->bytes;
    total.rounding += part->rounding;
  }
  return total;
}

Json to_json(const OomEvent& event) {
  Json json = Json::object({{"kind", name(kOomKindNames, event.kind)}, {"line", event.line}});
  if (event.times > 1) json["times"] = event.times;
  if (event.rank) json["rank"] = *event.rank;
  if (event.gpu) json["gpu"] = *event.gpu;
  if (event.pid) json["pid"] = *event.pid;
  constexpr std::array<std::string_view, kSizes.size()> kSizeKeys = {"tried_bytes",
                                                                     "capacity_bytes",
                                                                     "free_bytes",
                                                                     "limit_bytes",
                                                                     "process_bytes",
                                                                     "allocated_bytes",
                                                                     "private_pools_bytes",
                                                                     "reserved_bytes",
                                                                     "reserved_unallocated_bytes",
                                                                     "host_resident_bytes"};
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    if (const auto& size = event.*kSizes[i]) json[kSizeKeys[i]] = size->bytes.count();
  }
  for (const OomProcess& other : event.other_processes) {
    Json process = Json::object({{"pid", other.pid}});
    if (other.memory) process["bytes"] = other.memory->bytes.count();
    json["other_processes"].push_back(std::move(process));
  }
  return json;
}

}  // namespace zeroplan::evidence
