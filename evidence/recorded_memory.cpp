#include "evidence/recorded_memory.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/diagnostic.hpp"
#include "evidence/importers/unpickle.hpp"

namespace zeroplan::evidence {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

constexpr std::array<std::pair<std::string_view, simulator::AllocatorAction>, 8> kActions{{
    {"alloc", simulator::AllocatorAction::alloc},
    {"free_requested", simulator::AllocatorAction::free_requested},
    {"free_completed", simulator::AllocatorAction::free_completed},
    {"segment_alloc", simulator::AllocatorAction::segment_alloc},
    {"segment_free", simulator::AllocatorAction::segment_free},
    {"segment_map", simulator::AllocatorAction::segment_map},
    {"segment_unmap", simulator::AllocatorAction::segment_unmap},
    {"oom", simulator::AllocatorAction::oom},
}};

// Nothing for what does nothing to the allocator: "snapshot", marks of the user.
std::optional<simulator::AllocatorAction> action_of(std::string_view name) {
  for (const auto& [known, action] : kActions) {
    if (known == name) return action;
  }
  return std::nullopt;
}

class SnapshotReader {
 public:
  SnapshotReader(std::string_view bytes, const std::string& file)
      : file_(file), pickle_(Pickle::parse(bytes, file)), left_(pickle_.size()) {}

  RecordedMemory read() {
    const auto segments = pickle_.find(pickle_.root(), "segments");
    const auto traces = pickle_.find(pickle_.root(), "device_traces");
    if (!segments || !traces) {
      throw InputError({file_,
                        "",
                        "a memory snapshot: a dictionary with \"segments\" and \"device_traces\"",
                        "a pickle of other data",
                        "torch.cuda.memory._dump_snapshot(FILE) writes one"});
    }
    for (const Pickle::Ref segment : records(*segments)) read_segment(segment);
    constexpr std::size_t kMostDevices = 1024;
    const std::vector<Pickle::Ref>& devices = pickle_.items(*traces);
    for (std::size_t i = 0; i < std::min(devices.size(), kMostDevices); ++i) {
      const std::vector<Pickle::Ref>& trace = records(devices[i]);
      if (!trace.empty()) read_history(trace, device(static_cast<std::int64_t>(i)));
    }
    RecordedMemory memory;
    for (auto& [number, device] : devices_) memory.devices.push_back(std::move(device));
    if (const auto settings = pickle_.find(pickle_.root(), "allocator_settings")) {
      memory.settings = std::string(text_of(*settings, "PYTORCH_CUDA_ALLOC_CONF"));
    }
    return memory;
  }

 private:
  // Every record of a snapshot is a value of its own: records beyond their number are one value
  // many times, which a small file could make many enough to never end.
  const std::vector<Pickle::Ref>& records(Pickle::Ref list) {
    const std::vector<Pickle::Ref>& items = pickle_.items(list);
    if (items.size() > left_) {
      throw InputError({file_, "", "records of their own", "records shared by many lists", ""});
    }
    left_ -= items.size();
    return items;
  }

  std::int64_t integer_of(Pickle::Ref dictionary, std::string_view key) const {
    const auto value = pickle_.find(dictionary, key);
    const auto number = value ? pickle_.integer(*value) : std::nullopt;
    return number && *number >= 0 && *number <= kMostBytes ? *number : 0;
  }

  std::string_view text_of(Pickle::Ref dictionary, std::string_view key) const {
    const auto value = pickle_.find(dictionary, key);
    return value ? pickle_.text(*value).value_or("") : "";
  }

  RecordedDevice& device(std::int64_t number) {
    RecordedDevice& found = devices_[number];
    found.device = number;
    return found;
  }

  void read_segment(Pickle::Ref segment) {
    RecordedSegment read{.address = integer_of(segment, "address"),
                         .size = integer_of(segment, "total_size")};
    if (const auto blocks = pickle_.find(segment, "blocks")) {
      // Releases before 2.1 give no address: blocks follow each other.
      std::int64_t next = read.address;
      for (const Pickle::Ref block : records(*blocks)) {
        const std::string_view state = text_of(block, "state");
        const bool has_address = pickle_.find(block, "address").has_value();
        RecordedBlock one{.address = has_address ? integer_of(block, "address") : next,
                          .size = integer_of(block, "size")};
        if (state == "active_allocated") one.state = simulator::BlockState::allocated;
        if (state == "active_pending_free" || state == "active_awaiting_free") {
          one.state = simulator::BlockState::awaiting_events;
        }
        next = std::min(one.address + one.size, kMostBytes);
        read.blocks.push_back(one);
      }
    }
    device(integer_of(segment, "device")).segments.push_back(std::move(read));
  }

  // A folder of PyTorch's own says nothing of who asked; those of its engines do.
  static bool is_own(std::string_view file) {
    const auto within = [&](std::string_view folder) {
      return file.find(folder) != std::string_view::npos;
    };
    if (within("/zeroplan_rehearsal/")) return true;
    return within("/torch/") && !within("/torch/distributed/") && !within("/torch/optim/");
  }

  std::string place_of(Pickle::Ref entry) const {
    constexpr std::size_t kMostFrames = 64;
    constexpr std::size_t kMostLetters = 80;
    const auto frames = pickle_.find(entry, "frames");
    if (!frames) return "";
    const std::vector<Pickle::Ref>& stack = pickle_.items(*frames);
    for (std::size_t i = 0; i < std::min(stack.size(), kMostFrames); ++i) {
      std::string_view file = text_of(stack[i], "filename");
      if (is_own(file)) continue;
      const std::int64_t line = integer_of(stack[i], "line");
      file = file.substr(file.rfind('/') + 1).substr(0, kMostLetters);
      if (line == 0) return std::string(file);
      return std::string(file) + ":" + std::to_string(line) + " " +
             std::string(text_of(stack[i], "name").substr(0, kMostLetters));
    }
    return "";
  }

  void read_history(const std::vector<Pickle::Ref>& trace, RecordedDevice& device) const {
    device.history.reserve(trace.size());
    for (const Pickle::Ref entry : trace) {
      const auto action = action_of(text_of(entry, "action"));
      if (!action) continue;
      device.history.push_back({.action = *action,
                                .address = integer_of(entry, "addr"),
                                .size = integer_of(entry, "size"),
                                .stream = integer_of(entry, "stream"),
                                .place = place_of(entry)});
    }
  }

  const std::string& file_;
  Pickle pickle_;
  std::size_t left_;
  std::map<std::int64_t, RecordedDevice> devices_;
};

}  // namespace

RecordedMemory read_recorded_memory(std::string_view bytes, const std::string& file) {
  return SnapshotReader(bytes, file).read();
}

}  // namespace zeroplan::evidence
