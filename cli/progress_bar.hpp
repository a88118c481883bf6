// Messages to a terminal while an answer is made; nothing where standard error is none.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <iosfwd>
#include <mutex>
#include <optional>
#include <string>

#include "base/parallel_for.hpp"

namespace zeroplan::cli {

// One line that is written over and over from the first second on, until it goes: what is being
// done, the seconds so far, and a bar where somebody knows how much is done. Any thread may call.
class Progress {
 public:
  Progress(std::ostream& log, const std::string& text);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // share: of the work that is done, 0 to 1.
  void show(double share);
  // `more` stands behind the text where the terminal is wide enough; cells give way before text.
  void show(std::optional<double> share, const std::string& text, std::string more = "");
  // The line goes, before something else is written there.
  void end();

 private:
  void draw(int seconds);

  std::mutex mutex_;
  std::condition_variable done_;
  bool is_done_ = false;
  std::optional<double> share_;
  std::string text_, more_;
  std::size_t width_ = 0;  // of what stands there, in columns
  Threads draws_;          // nothing is drawn where no thread can be had
};

}  // namespace zeroplan::cli
