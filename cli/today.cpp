#include "cli/today.hpp"

#include <chrono>

#include <fmt/format.h>

namespace zeroplan::cli {

std::string today() {
  const std::chrono::year_month_day date(
      std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()));
  return fmt::format("{:04}-{:02}-{:02}",
                     static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()),
                     static_cast<unsigned>(date.day()));
}

}  // namespace zeroplan::cli
