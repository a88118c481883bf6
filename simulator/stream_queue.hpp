// A CUDA stream inside the event loop: work in order, at most one task running.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "simulator/stream_clock.hpp"

namespace zeroplan::simulator {

// A CUDA stream takes about so many launches ahead of the GPU before a launch blocks the host.
// Measured by many, documented by nobody: https://forums.developer.nvidia.com/t/232793 has 1024.
inline constexpr std::size_t kLaunchQueue = 1024;

struct StreamItem {
  enum class Kind : std::uint8_t { task, wait, mark };
  Kind kind = Kind::task;
  std::int32_t index = 0;   // task; stream waited for; phase
  std::int64_t ticket = 0;  // of wait: complete when that stream has completed it
  std::int32_t label = -1;
  std::int32_t launches = 1;  // of a task that stands for several in a row
};

// A collective whose peers are simulated too waits for them before and behind its own part.
enum class TaskStage : std::uint8_t { waits_to_begin, runs, waits_to_end };

// What a stream does right now.
struct RunningTask {
  std::int32_t task = -1;  // -1: none
  std::int32_t label = -1;
  double remaining = 0.0;  // seconds alone
  double rate = 1.0;       // of progress; below 1 where resources are shared
  double since = 0.0;      // when `remaining` was right
  double began = 0.0;
  TaskStage stage = TaskStage::runs;
};

class StreamQueue {
 public:
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == kLaunchQueue || launches_ >= kLaunchQueue; }
  const StreamItem& front() const { return items_[head_]; }
  void push(const StreamItem& item) {
    items_[(head_ + count_) % kLaunchQueue] = item;
    ++count_;
    launches_ += static_cast<std::size_t>(item.launches);
  }
  void pop() {
    launches_ -= static_cast<std::size_t>(front().launches);
    head_ = (head_ + 1) % kLaunchQueue;
    --count_;
  }

 private:
  std::array<StreamItem, kLaunchQueue> items_;
  std::size_t head_ = 0;
  std::size_t count_ = 0;
  std::size_t launches_ = 0;
};

}  // namespace zeroplan::simulator
