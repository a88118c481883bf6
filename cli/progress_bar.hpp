// One line on a terminal that is written over and over; nothing where standard error is none.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>

namespace zeroplan {

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

}  // namespace zeroplan
