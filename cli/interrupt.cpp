#include "cli/interrupt.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>

#include <sys/eventfd.h>
#include <unistd.h>

namespace zeroplan::cli {
namespace {

constexpr std::int64_t kSameRequest = 200'000'000;  // nanoseconds

struct Line {
  std::array<char, 120> text{};
  std::size_t length = 0;

  void hold(const std::string& said) {
    length = std::min(said.size(), text.size() - 1);
    std::memcpy(text.data(), said.data(), length);
    text[length++] = '\n';
  }
};

// All that the handler reaches: it may neither allocate nor lock.
struct State {
  std::atomic<int> guards = 0;
  std::atomic<std::int64_t> noted_at = 0;  // nanoseconds of the monotonic clock; 0: nothing yet
  std::atomic<int> signal = 0;             // the noted one
  std::atomic<bool> flag = false;
  int wake = -1;
  Line interrupted;
  Line terminated;
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

// One for the program, as there is one handler; constant at the start, so that there is no lock.
State& state() {
  static constinit State state;
  return state;
}

std::int64_t nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

[[noreturn]] void end_at_once(int signal) {
  const Line& line = signal == SIGTERM ? state().terminated : state().interrupted;
  if (write(STDERR_FILENO, line.text.data(), line.length) < 0) {
    // Nobody is left to be told.
  }
  _exit(128 + signal);
}

void note(State& all, int signal) {
  all.signal.store(signal);
  all.flag.store(true);
  const std::uint64_t one = 1;
  if (all.wake >= 0 && write(all.wake, &one, sizeof one) < 0) {
    // It is readable already.
  }
}

extern "C" void on_interrupt(int signal) {
  const int before = errno;
  State& all = state();
  const std::int64_t now = nanoseconds();
  std::int64_t first = 0;
  if (all.guards.load() > 0 && all.noted_at.compare_exchange_strong(first, now)) {
    note(all, signal);
  } else if (all.noted_at.load() == 0 || now - all.noted_at.load() >= kSameRequest) {
    end_at_once(signal);
  }
  errno = before;
}

void take(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  if (action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;  // what reads and writes knows nothing of signals
  sigaction(signal, &action, nullptr);
}

}  // namespace

void install_interrupts(const Translation& words) {
  State& all = state();
  all.interrupted.hold(words.text("interrupted (SIGINT)"));
  all.terminated.hold(words.text("interrupted (SIGTERM)"));
  if (all.wake < 0) all.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  take(SIGINT);
  take(SIGTERM);
}

InterruptGuard::InterruptGuard() { ++state().guards; }
InterruptGuard::~InterruptGuard() { --state().guards; }
// One flag for all guards, as there is one signal.
const std::atomic<bool>& InterruptGuard::flag() { return state().flag; }
int InterruptGuard::wake() { return state().wake; }

std::optional<int> interrupted() {
  if (!state().flag.load()) return std::nullopt;
  return 128 + state().signal.load();
}

std::string interrupted_text() {
  const State& all = state();
  const Line& line = all.signal.load() == SIGTERM ? all.terminated : all.interrupted;
  return {line.text.data(), line.length - 1};
}

}  // namespace zeroplan::cli
