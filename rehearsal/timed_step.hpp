// How long a step of a rehearsed program takes: what it put on its streams, with each piece's time
// from the cost functions, played by the simulator's event loop with the host's own seconds.
//
// [T20] Products by shape ([T6]), fused attention by shape and kernel ([T8]), other kernels by what
// their operation reads and writes ([T9], in equal parts over its kernels), collectives by group
// and bytes ([T12]), copies ([T13]), CPU Adam ([T14]). A call costs the host what it took in the
// rehearsal, plus `host_launch_seconds` where it enqueues work: the driver's part, which is not
// there in a rehearsal. Left out: what the driver takes for events and allocations, the speed of
// this machine's cores beside that of the cluster's, kernels of no operation (their floor alone),
// other ranks, which are taken to keep up.
#pragma once

#include <optional>
#include <string>

#include "model/cost/coefficients.hpp"
#include "model/hardware/hardware.hpp"
#include "model/software.hpp"
#include "rehearsal/recorded_work.hpp"
#include "simulator/event_loop.hpp"
#include "simulator/trace.hpp"

namespace zeroplan::rehearsal {

// Of the timed step. Bytes: of collectives what a call counts.
struct WorkCounts {
  std::int64_t kernels = 0, products = 0, attention = 0, collectives = 0, copies = 0,
               host_waits = 0;
  std::int64_t kernels_of_no_operation = 0;  // whose bytes nobody knows
  Bytes collective_bytes, copied_to_device, copied_to_host;
};

struct TimedStep {
  simulator::TimeAccount account;
  WorkCounts counts;
  // The compute stream waits for it, or runs it itself: since 2.7 torch puts collectives that
  // nobody overlaps there.
  Seconds exposed_communication, exposed_offload;
  Seconds total() const { return Seconds::of(account.end - account.begin); }
  Bound bound() const;  // what takes most of it
};

struct TimedRun {
  simulator::Program program;
  simulator::Timeline timeline;  // of the timed step
  TimedStep step;
};

// The last whole step that was recorded: from the end of one update to the end of the next. Absent
// where there are not two updates. `torch` says which kernel attention is.
std::optional<TimedRun> time_step(const RecordedWork& work,
                                  const Cluster& cluster,
                                  const Version& torch);

// What each collective takes on the cluster, as rehearsal/real_gpu/collective_times.hpp reads it:
// lines for powers of two and for every number of ranks that divides the cluster's.
std::string collective_times(const Cluster& cluster, const Version& torch);

}  // namespace zeroplan::rehearsal
