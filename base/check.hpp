// ZP_CHECK for programmer errors: a broken precondition or invariant, never user input.
// It throws std::logic_error with file, line, condition and message; the command line turns that
// into exit code 1 and a request for a report. User input goes through base/diagnostic.hpp.
//
// SizeOverflow is neither: sizes that a user may ask for, each within its range, whose product no
// 64-bit count holds. The command line reports it as bad input.
#pragma once

#include <stdexcept>
#include <string>

namespace zeroplan {

[[noreturn]] inline void check_failed(const char* file,
                                      int line,
                                      const char* condition,
                                      const std::string& message) {
  throw std::logic_error(std::string(file) + ":" + std::to_string(line) +
                         ": internal error: " + message + " [" + condition + "]");
}

class SizeOverflow : public std::overflow_error {
 public:
  SizeOverflow() : std::overflow_error("a size does not fit 64 bits") {}
};

}  // namespace zeroplan

#define ZP_CHECK(condition, message)                                       \
  do {                                                                     \
    if (!(condition)) {                                                    \
      ::zeroplan::check_failed(__FILE__, __LINE__, #condition, (message)); \
    }                                                                      \
  } while (false)
