// Repeated timings and what is kept of them: median and quartiles, warm-up discarded.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/units.hpp"

namespace zeroplan::runtime {

// Median and quartiles by linear interpolation between ranks (type 7 of Hyndman and Fan 1996).
struct Spread {
  double median = 0.0, q1 = 0.0, q3 = 0.0;
  std::int64_t n = 0;
  std::int64_t discarded = 0;  // warm-up
  // Of the median, as for a normal sample: (q3 - q1) / 1.349 x 1.2533 / sqrt(n) over it.
  double relative_sd() const;
};

// Precondition: not empty.
Spread spread_of(std::vector<double> values, std::int64_t discarded);

struct Repetition {
  std::int64_t discard = 2;
  std::int64_t least = 5;
  std::int64_t most = 1000;
  Seconds long_enough = Seconds::of(0.3);  // of all kept together, once there are `least`
  Seconds patience = Seconds::infinite();  // from here on three are enough
};

// What `timed` returns, seconds, of each kept call: until there are enough.
std::vector<double> repeat_timed(const std::function<double()>& timed,
                                 const Repetition& repetition);

// Seconds of each kept call of `work`, by the host's clock. `before` runs ahead of each, untimed.
std::vector<double> repeat(const std::function<void()>& work,
                           const Repetition& repetition,
                           const std::function<void()>& before = {});

// Seconds -> amount / seconds.
std::vector<double> rates(double amount, std::vector<double> seconds);

}  // namespace zeroplan::runtime
