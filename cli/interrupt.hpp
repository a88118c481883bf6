// What SIGINT (Ctrl-C) and SIGTERM do to a command, in one place.
//
// A command ends at once: one line on standard error, exit code 128 + signal (docs/contract.md
// section 3); its files are written under another name and renamed, so none is left half. A command
// with something to keep (the best so far, finished lines, a checkpoint) holds an InterruptGuard
// meanwhile: then the first signal is noted alone, the command looks at flag(), stops where that
// is whole and exits with interrupted(). A second signal ends it at once.
//
// Launchers and timeout(1) tell the same request twice within microseconds, to the process and to
// its group: what comes within a fifth of a second of the first signal is the same one. A signal
// that was ignored when the program began (nohup, a script's background) stays ignored. No layer
// below knows signals: it is handed a flag or a function.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "cli/language/translation.hpp"

namespace zeroplan::cli {

// Takes both signals from here on; `words` for the line that is printed.
void install_interrupts(const Translation& words);

// While one lives, the first signal is noted and does not end the program.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // True from the first signal on.
  static const std::atomic<bool>& flag();
  // A descriptor that is readable from the first signal on, for poll() beside what is waited for;
  // -1 where there is none.
  static int wake();
};

// The exit code that a noted signal asks for, 130 or 143; nothing before one came.
std::optional<int> interrupted();

// "interrupted (SIGTERM)": the line that says so. Precondition: interrupted().
std::string interrupted_text();

}  // namespace zeroplan::cli
