// What a prediction is asked with.
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.hpp"

namespace zeroplan {

// Boards take about so many times the host memory that nodes usually have: 192 GB where 64 are
// usual, 1.5 TB where 512 are. Assumed.
inline constexpr std::int64_t kOpenHostMemory = 3;

struct PredictOptions {
  double confidence = 0.95;  // the probability from which on a plan is said to fit
  Bytes reserve;             // GPU memory kept free for others
  // Where nobody said how much host memory a node has, what is needed is a requirement for the
  // reader (StepResult::host_condition) and no verdict, up to kOpenHostMemory times what is usual
  // for such a node. False where a run is compared with what it did: then the usual amount, as
  // uncertain as it is, counts.
  bool host_is_open = true;
  // The likeliest numbers alone, for searches: the time's interval is a point, and other networks
  // are left out. These take most of a prediction's time.
  bool likeliest_alone = false;
  // What the checkpoints' storage takes a second, per node, where the run's dataset is known;
  // unspecified: the node's NVMe.
  std::optional<BytesPerSecond> checkpoint_bandwidth;
};

}  // namespace zeroplan
