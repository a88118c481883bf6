// A prediction in which the engine is simulated: memory through the allocator on a GPU of finite
// size, time through streams and what they share.
//
// The analytic estimate (model/predict) still answers what is not simulated: host memory, NVMe
// space, saving, the spread of coefficients. Engines without a writer of programs keep the analytic
// estimate.
#pragma once

#include <optional>

#include "model/plan/plan.hpp"
#include "model/predict/predict.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan::simulator {

struct KnownRanks;
class SimulationMemo;

struct SimulateOptions {
  PredictOptions predict;
  bool other_networks = true;  // play the usual networks too, where the plan's was assumed
  // GPUs of other sizes are tried only until it is known whether the plan fits: `fits` is the
  // same, its probability and what would be needed are coarser; near the GPU's limit times are,
  // too (of many equal micro-steps four are simulated: 0.1 % off in the median, small models up to
  // 9 %). Where it does not fit, peaks and times are those of a GPU without a limit.
  bool verdict_alone = false;
  // With verdict_alone: a plan that the analytic estimate sees near the GPU's limit is simulated at
  // the capacity threshold first, and nothing more where it does not run there. `fits` and the
  // names of the limits are the same; peaks and times of such a plan are the analytic estimate's.
  bool stops_at_the_limit = false;
  // The ranks that differ are simulated in lockstep. Off: the representative rank alone is
  // (write_representative), which is cheaper, for searches: the step takes a little longer, and
  // memory is that of the rank with the most, copying what the slowest owner of each bucket copies.
  bool lockstep = true;
  // Whose memory is told, of ranks that differ; the one that needs the most where none is asked
  // for. The verdict is that of all; of a pipeline it changes nothing.
  std::optional<int> rank;
  SimulationMemo* memo = nullptr;  // what was simulated before, and this; may be shared by threads
  // With a memo: of this very plan, which is not written again where all that is asked is known.
  KnownRanks* known = nullptr;
};

// Is there a writer of programs for the plan's engine, and are there the drives it swaps to?
bool is_simulated(const Plan& plan);

// The GPU fits with the probability that what is needed, uncertain by the analytic estimate's
// relative deviation d, is at most what there is: with x* the largest factor by which the GPU can
// be smaller and the rank still runs (flushes and retries allowed), Phi((x* - 1) / d). Throws
// InputError for a rank that the plan has not.
StepResult simulate(const Plan& plan, const SimulateOptions& options = {});

}  // namespace zeroplan::simulator
