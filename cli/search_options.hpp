// What tune, report and plot read from the command line about a search, and how they follow it.
#pragma once

#include <atomic>
#include <csignal>

#include "cli/arguments.hpp"
#include "cli/language/translation.hpp"
#include "cli/progress_bar.hpp"
#include "tuner/tune.hpp"

namespace zeroplan {

// Throws InputError.
TuneOptions tune_options_of(const Arguments& arguments, const Scenario& scenario);

// While it lives, Ctrl-C asks for the best so far; a second one ends the program as usual.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  const std::atomic<bool>& flag() const;

 private:
  struct sigaction before_ {};
};

void show_progress(const SearchProgress& progress, ProgressBar& bar, const Translation& words);

}  // namespace zeroplan
