// Holds the engine policies besides the stage-3 fetch coordinator against a recording of the real
// engine: partitions, gradient buckets, collectives, optimizer step, buffers.
//
// What is compared (legend of events: engine_traces):
//   init      wrapper class; groups, flat_numel, padding (stages 1, 2); sub_groups,
//             sub_group_numel, persistent (stage 3); count and total elements of the collectives
//             bc, bar, ag and of ds, with zero_init_events
//   steps     stages 0 to 2: every event of the step, in order, with all fields: phase, g, flush,
//             flat, ar, red, ag, own, acc_cpu, d2h32, opt, ws, ss, ds, er, es
//             stage 3: phase; from each gradient (g) or flush to the next module event: g, flush,
//             es, cat, flat, ar, rs, pg, off3, er, ws, ss; of the step: gap, ws, ar, flat, opt, ag,
//             ds. The module events and their fetches belong to replay_fetch.
//   buffers   init, after_bwd0, before_last_step, after_step: path, numel, dtype, bytes and pinned
//             of every storage of at least 64 bytes, in any order; param_elems_resident
//   counters  skipped_steps, global_steps
// The order in which gradients become ready comes from the recording (g of hooks), and so do the
// module fetches that decide which weights are gathered at a moment. Not compared: `views` and
// `small` of the buffer lists (they count Python references), the cat of init (made by printing
// tensors into a log line).
#pragma once

#include <vector>

#include "base/json.hpp"
#include "evidence/replay_mismatch.hpp"

namespace zeroplan::evidence {

// At most one mismatch a step (the first, as later ones follow from it), and one for each thing of
// init and each moment. Mismatches outside the events have event -1, those of init step -1 too.
// Throws InputError where the document does not have the form of a recording.
std::vector<ReplayMismatch> replay_reduce(const Json& recording);

}  // namespace zeroplan::evidence
