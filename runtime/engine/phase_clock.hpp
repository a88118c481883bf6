// How long a rank was in each phase of its steps.
#pragma once

#include <array>
#include <chrono>

#include "base/units.hpp"
#include "model/memory_category.hpp"

namespace zeroplan::runtime {

using PhaseSeconds = std::array<Seconds, kPhaseCount>;

class PhaseClock {
 public:
  // The phase before ends now.
  void enter(Phase phase) {
    const auto now = std::chrono::steady_clock::now();
    seconds_[static_cast<std::size_t>(phase_)] +=
        Seconds::of(std::chrono::duration<double>(now - began_).count());
    phase_ = phase;
    began_ = now;
  }
  const PhaseSeconds& seconds() const { return seconds_; }
  void forget() { seconds_ = {}; }

 private:
  PhaseSeconds seconds_{};
  Phase phase_ = Phase::load;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace zeroplan::runtime
