// interrupt.hpp where nobody sends signals: a browser ends a worker and asks nothing.
#include "cli/interrupt.hpp"

namespace zeroplan::cli {

void install_interrupts(const Translation& /*words*/) {}

InterruptGuard::InterruptGuard() = default;
InterruptGuard::~InterruptGuard() {
  // Nothing was taken.
}

const std::atomic<bool>& InterruptGuard::flag() {
  static constinit const std::atomic<bool> never = false;
  return never;
}

int InterruptGuard::wake() { return -1; }

std::optional<int> interrupted() { return std::nullopt; }

std::string interrupted_text() { return ""; }

}  // namespace zeroplan::cli
