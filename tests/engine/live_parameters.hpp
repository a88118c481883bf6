// How many parameter elements are on the GPU in the course of a micro-step, and what was gathered
// for it, summed up from a FetchLog: what is compared with recordings.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/engine/fetch_schedule.hpp"
#include "model/engine/live_elements.hpp"

namespace zeroplan {

struct LiveSpan {
  LiveElements begin;
  LiveElements peak;  // each on its own
  LiveElements end;
};

struct PassProfile {
  LiveSpan live;
  GatherTotals gathers;
};

// While a block (a decoder layer) runs. Backward includes its recomputation.
struct BlockProfile {
  ModuleIndex block = -1;
  LiveSpan forward;
  LiveSpan backward;
};

struct LiveParameterProfile {
  PassProfile forward;
  PassProfile backward;
  LiveElements peak;
  GatherTotals gathers;              // of both passes
  std::vector<BlockProfile> blocks;  // as asked for
};

// `events` are those of one micro-step (FetchStep::micro_step). Precondition: they begin with the
// reset of the coordinator, i.e. hold one micro_step event before the first module.
LiveParameterProfile profile_live_parameters(std::span<const FetchEvent> events,
                                             std::span<const ModuleIndex> blocks = {});

}  // namespace zeroplan
