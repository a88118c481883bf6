// Until when something may be looked for: a time, or Ctrl-C.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>

namespace zeroplan::tuner {

class Deadline {
 public:
  // Never, unless interrupted.
  explicit Deadline(const std::atomic<bool>* interrupted = nullptr) : interrupted_(interrupted) {}
  // In so many seconds from now.
  Deadline(double seconds, const std::atomic<bool>* interrupted)
      : seconds_(seconds), interrupted_(interrupted) {}

  double left() const {
    const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - began_;
    return std::max(0.0, seconds_ - gone.count());
  }
  bool interrupted() const { return interrupted_ != nullptr && interrupted_->load(); }
  bool over() const { return interrupted() || left() <= 0.0; }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  double seconds_ = std::numeric_limits<double>::infinity();
  const std::atomic<bool>* interrupted_ = nullptr;
};

}  // namespace zeroplan::tuner
