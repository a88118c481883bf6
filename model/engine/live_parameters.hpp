// How many parameter elements are on the GPU in the course of a micro-step, and what was gathered
// for it: the fold of a FetchLog that analytic estimates of memory and traffic need.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/engine/fetch_schedule.hpp"

namespace zeroplan {

struct LiveElements {
  Elements parameters;  // gathered, in flight and persistent: the sum of their numel
  // What is allocated for them: padding, flat buckets, secondary partitions included.
  Elements buffers;
};

struct LiveSpan {
  LiveElements begin;
  LiveElements peak;  // each on its own
  LiveElements end;
};

struct GatherTotals {
  Elements gathered;             // numel of the parameters handed to gathers
  Elements collective_elements;  // full outputs of the collectives, padding included
  Elements copied;               // copied out of flat buffers
  std::int64_t collectives = 0;
  std::int64_t multi_parameter = 0;  // of these, with several parameters in one buffer
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
