// Holds the stage-3 fetch coordinator against a recording of the real engine.
//
// A recording is one line of traces.jsonl: a model as modules with direct parameters, a ds_config,
// and for every optimizer step the ordered list of events (legend: forms such as
// ["F", module, "f", step_id, n_available], ["ag", elements, dtype, group, async, stream,
// in_place]). The order of module entries and exits is taken from the recording and drives the
// coordinator; all else is predicted and compared, one module event after the other: fetches,
// prefetches, waits, releases, trace mode, n_available, collectives with size, dtype, stream and
// asynchrony, copies out of flat buckets, stream waits, recorded events and host waits on them, the
// broadcasts that compare the trace, and the gathers after the step. Free: the order of waits
// inside a module, of releases inside an exit and of parameters inside one gather (they are sets in
// the engine).
#pragma once

#include <vector>

#include "base/json.hpp"
#include "evidence/replay_mismatch.hpp"

namespace zeroplan::evidence {

// Empty for a recording of another stage. At most one mismatch a step: the first, as later ones
// follow from it. Throws InputError where the document does not have the form of a recording.
std::vector<ReplayMismatch> replay_fetch(const Json& recording);

}  // namespace zeroplan::evidence
