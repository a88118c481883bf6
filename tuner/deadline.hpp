// Until when something may be looked for, a time or Ctrl-C; and how far that is.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>

namespace zeroplan::tuner {

// Told how much of a long answer is there, 0 to 1; from any thread.
using ShareDone = std::function<void(double)>;

// Pieces of work of a known number, as threads finish them.
class PiecesDone {
 public:
  PiecesDone(const ShareDone& told, std::size_t pieces) : told_(told), pieces_(pieces) {}
  void add() {
    const std::size_t done = ++done_;
    if (told_) told_(static_cast<double>(done) / static_cast<double>(pieces_));
  }

 private:
  const ShareDone& told_;
  std::size_t pieces_;
  std::atomic<std::size_t> done_{0};
};

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
