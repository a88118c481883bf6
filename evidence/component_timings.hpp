// Timings of parts of a step: a collective of a given size, a kernel on given shapes. They stand in
// a measurement beside `measured`, as `collectives` and `kernels` (docs/import.md), and no metric
// of a step follows from them alone: `validate` skips a line that has nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "base/units.hpp"

namespace zeroplan::evidence {

// One collective, repeated `count` times.
struct CollectiveTiming {
  std::string operation;           // "all_reduce", "all_gather", "reduce_scatter", "broadcast", ...
  Bytes bytes;                     // of the whole tensor, as nccl-tests' column `size`
  std::int64_t ranks = 0;          // 0 where nobody says
  std::int64_t nodes = 0;          // the same
  std::string dtype;               // as printed; may be empty
  bool in_place = false;           //
  std::int64_t count = 0;          // repetitions behind `seconds`; 0 where nobody says
  Seconds seconds;                 // nccl-tests: the mean; a trace: the median
  std::optional<Seconds> fastest;  // a trace: without waiting for slower ranks
  friend bool operator==(const CollectiveTiming&, const CollectiveTiming&) = default;
};

// One GPU kernel on one set of shapes, launched `count` times in the time that was traced.
struct KernelTiming {
  std::string kernel;     // its name
  std::string operation;  // "aten::mm" that launched it; may be empty
  std::string shapes;     // of the operation's inputs, as the trace writes them; may be empty
  std::string dtypes;     // the same
  std::int64_t count = 0;
  Seconds seconds;  // median of one launch
  Seconds total;
  friend bool operator==(const KernelTiming&, const KernelTiming&) = default;
};

struct ComponentTimings {
  std::vector<CollectiveTiming> collectives;
  std::vector<KernelTiming> kernels;
  bool empty() const { return collectives.empty() && kernels.empty(); }
  friend bool operator==(const ComponentTimings&, const ComponentTimings&) = default;
};

Json to_json(const CollectiveTiming& timing);
Json to_json(const KernelTiming& timing);

// The rows of the arrays `collectives` and `kernels` of a line; null for a line without. What is
// wrong with a row goes to `problems`, the row is left out.
ComponentTimings parse_component_timings(const Json* collectives,
                                         const Json* kernels,
                                         const std::string& file,
                                         std::vector<Diagnostic>& problems);

}  // namespace zeroplan::evidence
