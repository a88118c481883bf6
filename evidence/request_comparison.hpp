// A recorded history of PyTorch's allocator beside that of a simulation of the same run, request by
// request: where the two differ in what is asked for, on which stream, and until when it is kept.
// Which block a request gets is another question (allocator_replay.hpp).
//
// Requests are put side by side so that as many as possible are of the same size in the same order
// (Myers 1986, An O(ND) Difference Algorithm and Its Variations). A simulation plays fewer steps
// than a run may have; what follows the end of either is not compared. Streams have no names in
// common: the recorded one is taken to be the simulated one that most of its requests are on. A
// tensor lives alike where as many requests that both have come before its end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "base/units.hpp"
#include "evidence/recorded_memory.hpp"

namespace zeroplan::evidence {

enum class RequestDifferenceKind { recorded_only, simulated_only, stream, lifetime };

struct RequestDifference {
  RequestDifferenceKind kind = RequestDifferenceKind::recorded_only;
  std::string
      module;         // the simulated request's; of one that was recorded only, the one's before it
  std::string place;  // the recorded one's Python line; empty: a thread of autograd
  Bytes size;
  std::int64_t times = 0;  // differences that are alike in all this
};

// Of one module of the simulation.
struct ModuleRequests {
  std::string module;
  std::int64_t recorded = 0, simulated = 0, equal = 0;  // equal: size, stream and lifetime
};

struct RequestComparison {
  std::int64_t recorded = 0, simulated = 0;  // as far as both go
  std::int64_t both = 0;                     // of the same size, side by side
  std::int64_t other_stream = 0, other_lifetime = 0;
  std::vector<ModuleRequests> modules;         // in order of their first request
  std::vector<RequestDifference> differences;  // the most bytes first
};

// Of requests of at least that size: below a megabyte PyTorch serves them from segments of 2 MiB.
// Throws InputError where the two have too little in common.
RequestComparison compare_requests(const RecordedDevice& recorded,
                                   const RecordedDevice& simulated,
                                   Bytes at_least,
                                   const std::string& file);

// {"schema":"zeroplan.requests/1","recorded":n,"simulated":n,"both":n,"other_stream":n,
//   "other_lifetime":n,"modules":[{"module":"…","recorded":n,"simulated":n,"equal":n}],
//   "differences":[{"kind":"…","module":"…","place":"…","bytes":n,"times":n}]}
Json to_json(const RequestComparison& comparison);

}  // namespace zeroplan::evidence
