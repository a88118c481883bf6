// Messages to a terminal while an answer is made; nothing where standard error is none.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <iosfwd>
#include <mutex>
#include <string>
#include <thread>

namespace zeroplan::cli {

// One line that is written over and over.
class ProgressBar {
 public:
  explicit ProgressBar(std::ostream& log);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // share: of the work that is done, 0 to 1. `more` stands behind the text where the terminal is
  // wide enough; cells give way before text does.
  void show(double share, const std::string& text, const std::string& more = "");

 private:
  bool terminal_ = false;
  std::size_t width_ = 0;  // of what stands there, in columns
};

// A line for a question that takes more than a second, with the seconds behind it, while it is
// alive.
class SlowNotice {
 public:
  SlowNotice(std::ostream& log, std::string text);
  ~SlowNotice();
  SlowNotice(const SlowNotice&) = delete;
  SlowNotice& operator=(const SlowNotice&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool is_done_ = false;
  std::thread waits_;
};

}  // namespace zeroplan::cli
