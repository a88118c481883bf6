// The timed step of a simulation, reduced to what a plot of a few hundred pixels can show.
#pragma once

#include "base/json.hpp"
#include "simulator/recording.hpp"

namespace zeroplan::cli {

// The last micro-step and the optimizer's step: where a step has one micro-step, all of it. s since
// the program's start.
struct Window {
  double begin = 0.0;
  double end = 0.0;
};

Window last_micro_step(const simulator::Timeline& timeline);

// {"seconds":…,"peak_bytes":…,"categories":[…],"samples":[[s, bytes of each
// category…],…],"phases":[…]}: samples within the window, by time; of each 1/kMoments of it the
// highest and the lowest moment. Categories add up to what torch has reserved and what lies outside
// it.
Json memory_timeline(const simulator::SimulatedStep& step);

// {"seconds":…,"streams":[…],"bars":[…],"phases":[…]}: tasks of one stream, kind and label in a row
// are one bar where the gaps between them are below 1/kMoments of the window.
Json stream_timeline(const simulator::SimulatedStep& step);

inline constexpr int kMoments = 400;

}  // namespace zeroplan::cli
