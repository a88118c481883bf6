// Branch and bound over a search space: bounds leave points out, the simulator decides about the
// rest.
//
// A tree of three levels: strategy, checkpointing and batch; then the knobs of the optimizer's step
// and the host; then those of gathers and reductions. A branch is left out with all its points
// where a bound proves that none of them fits, or that none is better than the best found so far.
// Branches are opened best bound first; their points are simulated the simplest first, in rounds of
// a fixed size, so that the answer does not depend on the number of threads.
//
// The answer: of the points whose score is within `gap` of the best one simulated, which is as good
// as a prediction tells them apart, the simplest: the least offloaded, then the one with the fewest
// knobs that differ from the default; one that does not fill its GPU before all that do.
// `optimal`: no point that was left out can be better than the best one by more than `gap`; with a
// gap of 0 the answer is that of exhaustive enumeration, and so it is where few points come into
// question: the gap leaves nothing out before 48 were simulated. Near a GPU's limit the bounds
// cannot know which points give memory back in every step, and thousands would have to be played
// one by one: after `patience` simulations without a better point, or `most_evaluated` in all, the
// search ends and says how much better, by a bound, the rest can be. Both count simulations, so the
// answer is the same on every machine; `seconds` is for users who want it sooner. `any_fit` opens
// what needs least memory first. Checked by tests/property/search_property.cpp.
#pragma once

#include "simulator/simulation_memo.hpp"
#include "tuner/search_result.hpp"
#include "tuner/search_space.hpp"

namespace zeroplan::tuner {

SearchResult search(const SearchSpace& space, const SearchOptions& options);

// What is asked about a point: all of its numbers, or those alone of a point that fits. Then one
// near the GPU's limit is dropped where it runs out of memory.
enum class Numbers { all, of_what_fits };

// One point, simulated. Refusals of a plan are a reason not to fit.
Evaluated evaluate(const SearchSpace& space,
                   const Point& point,
                   const SearchLimits& limits,
                   simulator::SimulationMemo* memo = nullptr,
                   Numbers numbers = Numbers::all);

}  // namespace zeroplan::tuner
