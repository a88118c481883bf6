#include "evidence/importers/memory_snapshot_import.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

#include <fmt/format.h>

#include "evidence/importers/unpickle.hpp"

namespace zeroplan {
namespace {

constexpr std::string_view kFrom = "the memory snapshot";
constexpr double kUnsplit = 1024.0 * 1024.0;  // a block may keep as much beyond what was asked
constexpr SeriesInfo kPeakAllocated{Metric::peak_allocated_bytes, kFrom, 1, kUnsplit, false, "GPU"};
constexpr SeriesInfo kPeakReserved{Metric::peak_reserved_bytes, kFrom, 1, 0.0, false, "GPU"};

constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

// What a device holds at one moment.
struct Held {
  std::int64_t allocated = 0;
  std::int64_t reserved = 0;
  std::unordered_map<std::int64_t, std::int64_t> blocks;  // sizes of what is allocated, by address
};

std::int64_t integer_of(const Pickle& pickle, Pickle::Ref dictionary, std::string_view key) {
  const auto value = pickle.find(dictionary, key);
  const auto number = value ? pickle.integer(*value) : std::nullopt;
  return number && *number >= 0 && *number <= kMostBytes ? *number : 0;
}

std::string_view text_of(const Pickle& pickle, Pickle::Ref dictionary, std::string_view key) {
  const auto value = pickle.find(dictionary, key);
  return value ? pickle.text(*value).value_or("") : "";
}

// A sum of sizes that stays below 2^62 whatever the file says.
void add(std::int64_t& sum, std::int64_t size) { sum = std::min(sum + size, kMostBytes); }

// Every record of a snapshot is a value of its own: records beyond their number are one value many
// times, which a small file could make many enough to never end.
class Visits {
 public:
  Visits(const Pickle& pickle, const std::string& file) : left_(pickle.size()), file_(file) {}
  void add(std::size_t count) {
    if (count > left_) {
      throw InputError({file_, "", "records of their own", "records shared by many lists", ""});
    }
    left_ -= count;
  }

 private:
  std::size_t left_;
  const std::string& file_;
};

std::map<std::int64_t, Held> held_at_the_end(const Pickle& pickle,
                                             Pickle::Ref segments,
                                             Visits& visits) {
  std::map<std::int64_t, Held> held;
  visits.add(pickle.items(segments).size());
  for (const Pickle::Ref segment : pickle.items(segments)) {
    Held& device = held[integer_of(pickle, segment, "device")];
    add(device.reserved, integer_of(pickle, segment, "total_size"));
    const auto blocks = pickle.find(segment, "blocks");
    if (!blocks) continue;
    visits.add(pickle.items(*blocks).size());
    for (const Pickle::Ref block : pickle.items(*blocks)) {
      if (text_of(pickle, block, "state") != "active_allocated") continue;
      const std::int64_t size = integer_of(pickle, block, "size");
      add(device.allocated, size);
      device.blocks[integer_of(pickle, block, "address")] = size;
    }
  }
  return held;
}

struct Walk {
  std::int64_t peak_allocated = 0, peak_reserved = 0;
  std::int64_t begin_allocated = 0, begin_reserved = 0;
  bool out_of_memory = false;
};

std::int64_t rounded(std::int64_t size) {
  constexpr std::int64_t kBlock = 512;
  return round_up(size, kBlock);
}

// A block may be larger than what was asked of it: its own size counts where it is still there.
Walk walk_back(const Pickle& pickle, const std::vector<Pickle::Ref>& trace, Held now) {
  Walk walk{now.allocated, now.reserved, 0, 0, false};
  for (std::size_t i = trace.size(); i-- > 0;) {
    const std::string_view action = text_of(pickle, trace[i], "action");
    const std::int64_t size = integer_of(pickle, trace[i], "size");
    const std::int64_t address = integer_of(pickle, trace[i], "addr");
    if (action == "alloc") {
      const auto block = now.blocks.extract(address);
      const std::int64_t held = block.empty() ? rounded(size) : block.mapped();
      now.allocated = std::max<std::int64_t>(0, now.allocated - held);
    } else if (action == "free_requested") {
      add(now.allocated, rounded(size));
      now.blocks[address] = rounded(size);
    } else if (action == "segment_alloc" || action == "segment_map") {
      now.reserved = std::max<std::int64_t>(0, now.reserved - size);
    } else if (action == "segment_free" || action == "segment_unmap") {
      add(now.reserved, size);
    } else if (action == "oom") {
      walk.out_of_memory = true;
    }
    walk.peak_allocated = std::max(walk.peak_allocated, now.allocated);
    walk.peak_reserved = std::max(walk.peak_reserved, now.reserved);
  }
  walk.begin_allocated = now.allocated;
  walk.begin_reserved = now.reserved;
  return walk;
}

void add_device(int device, const Walk& walk, std::size_t events, RunFindings& findings) {
  const Place place{device, 0};
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  findings.sample(kPeakAllocated, static_cast<double>(walk.peak_allocated), place);
  findings.sample(kPeakReserved, static_cast<double>(walk.peak_reserved), place);
  if (walk.out_of_memory) {
    findings.fits = false;
    findings.note(fmt::format("device {} ran out of memory in the time of the snapshot", device));
  }
  const std::string begin =
      walk.begin_reserved == 0
          ? "from the first allocation on"
          : fmt::format("which begins with {:.2f} GiB allocated; the peak before is not in it",
                        static_cast<double>(walk.begin_allocated) / kGib);
  findings.note(fmt::format("device {}: {} events of history, {}", device, events, begin));
}

}  // namespace

void read_memory_snapshot(std::string_view bytes, RunFindings& findings) {
  const Pickle pickle = Pickle::parse(bytes, findings.file());
  const auto segments = pickle.find(pickle.root(), "segments");
  const auto traces = pickle.find(pickle.root(), "device_traces");
  if (!segments || !traces) {
    throw InputError({findings.file(),
                      "",
                      "a memory snapshot: a dictionary with \"segments\" and \"device_traces\"",
                      "a pickle of other data",
                      "torch.cuda.memory._dump_snapshot(FILE) writes one"});
  }
  Visits visits(pickle, findings.file());
  const std::map<std::int64_t, Held> held = held_at_the_end(pickle, *segments, visits);
  const std::vector<Pickle::Ref>& devices = pickle.items(*traces);
  constexpr std::size_t kMostDevices = 1024;
  bool any = false;
  for (std::size_t device = 0; device < std::min(devices.size(), kMostDevices); ++device) {
    const std::vector<Pickle::Ref>& trace = pickle.items(devices[device]);
    if (trace.empty()) continue;
    visits.add(trace.size());
    any = true;
    const auto end = held.find(static_cast<std::int64_t>(device));
    const Walk walk = walk_back(pickle, trace, end == held.end() ? Held{} : end->second);
    add_device(static_cast<int>(device), walk, trace.size(), findings);
  }
  if (!any) {
    findings.note(
        "the snapshot has no history, so no peak: call "
        "torch.cuda.memory._record_memory_history() before training");
  }
}

}  // namespace zeroplan
