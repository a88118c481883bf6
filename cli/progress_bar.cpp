#include "cli/progress_bar.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/diagnostic.hpp"

namespace zeroplan::cli {
namespace {

// Of a terminal that does not say, 80.
std::size_t terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

// As much of UTF-8 text as takes so many columns, and how many it takes: characters from U+3000 on,
// which messages have of Chinese alone, take two.
struct Cut {
  std::string text;
  std::size_t columns = 0;
};

Cut cut(const std::string& text, std::size_t most) {
  std::size_t columns = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0) == 0x80) continue;  // goes on
    const std::size_t wide = byte >= 0xE3 ? 2 : 1;
    if (columns + wide > most) return {text.substr(0, i), columns};
    columns += wide;
  }
  return {text, columns};
}

// std::cerr escapes what steers a terminal (cli/terminal_text.hpp); here the cursor is meant to go
// back.
void write_to_terminal(const std::string& text) { std::fputs(text.c_str(), stderr); }

std::size_t columns_of(const std::string& text) { return cut(text, text.size()).columns; }

bool is_terminal(const std::ostream& log) {
  return &log == &std::cerr && isatty(STDERR_FILENO) == 1;
}

}  // namespace

Progress::Progress(std::ostream& log, const std::string& text) : text_(printable(text)) {
  if (!is_terminal(log)) return;
  draws_.start(1, [this](std::size_t) noexcept {
    constexpr std::chrono::milliseconds kTick(500);
    std::unique_lock lock(mutex_);
    for (int ticks = 1; !done_.wait_for(lock, kTick, [&] { return is_done_; }); ++ticks) {
      if (ticks >= 2) draw(ticks / 2);
    }
  });
}

Progress::~Progress() { end(); }

void Progress::end() {
  if (draws_.size() == 0) return;
  {
    const std::lock_guard lock(mutex_);
    is_done_ = true;
  }
  done_.notify_one();
  draws_.join();
  if (width_ == 0) return;
  // With the terminal's ^C behind it.
  const std::size_t wiped = std::min(width_ + 2, std::max<std::size_t>(terminal_columns(), 1) - 1);
  try {
    write_to_terminal('\r' + std::string(wiped, ' ') + '\r');
  } catch (const std::bad_alloc&) {
    // The line stays where it is.
  }
}

void Progress::show(double share) {
  const std::lock_guard lock(mutex_);
  share_ = share;
}

void Progress::show(std::optional<double> share, const std::string& text, std::string more) {
  const std::lock_guard lock(mutex_);
  share_ = share;
  text_ = printable(text);
  more_ = std::move(more);
}

void Progress::draw(int seconds) {
  const std::string after = fmt::format(" ({} s)", seconds);
  constexpr std::size_t kMostCells = 24;
  constexpr std::size_t kFewestCells = 8;
  // A line that wraps could not be written over; the cursor stands behind it, or the terminal's ^C.
  const std::size_t columns = std::max<std::size_t>(terminal_columns(), 8) - 3;
  std::string line = cut(text_, columns - std::min(columns, after.size())).text;
  if (columns_of(line + more_ + after) + kFewestCells + 3 <= columns) line += more_;
  line += after;
  const std::size_t taken = columns_of(line) + 3;
  const std::size_t left = columns > taken ? columns - taken : 0;
  if (share_ && left >= kFewestCells) {
    const std::size_t cells = std::min(kMostCells, left);
    const auto full =
        static_cast<std::size_t>(std::clamp(*share_, 0.0, 1.0) * static_cast<double>(cells));
    line = "[" + std::string(full, '#') + std::string(cells - full, '.') + "] " + line;
  }
  const std::size_t length = columns_of(line);
  const std::size_t wiped = std::min(width_, columns);  // the terminal may have become narrower
  if (length < wiped) line += std::string(wiped - length, ' ');
  width_ = length;
  write_to_terminal('\r' + line);
}

}  // namespace zeroplan::cli
