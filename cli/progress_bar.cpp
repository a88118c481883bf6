#include "cli/progress_bar.hpp"

#include <algorithm>
#include <iostream>

#include <unistd.h>

namespace zeroplan {

ProgressBar::ProgressBar(std::ostream& log)
    : log_(log), terminal_(&log == &std::cerr && isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (width_ > 0) log_ << '\r' << std::string(width_, ' ') << '\r' << std::flush;
}

void ProgressBar::show(double share, const std::string& text) {
  if (!terminal_) return;
  constexpr int kCells = 24;
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * kCells);
  std::string line = "[" + std::string(static_cast<std::size_t>(full), '#') +
                     std::string(static_cast<std::size_t>(kCells - full), '.') + "] " + text;
  const std::size_t length = line.size();
  if (length < width_) line += std::string(width_ - length, ' ');
  width_ = length;
  log_ << '\r' << line << std::flush;
}

}  // namespace zeroplan
