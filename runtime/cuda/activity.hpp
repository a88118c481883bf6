// What the GPU did and when, from CUPTI's activity records: kernels, copies, sets, each with its
// stream and with the span of the Timeline that ordered it. For sources of runtime/cuda alone.
#pragma once

#include <memory>

#include "runtime/engine/timeline.hpp"

namespace zeroplan::runtime::cuda {

bool built_with_cupti();

// Null where CUPTI is missing or refuses (another profiler has it): then spans wait for the GPU and
// the host's clock counts. One at a time in a process.
std::unique_ptr<DeviceRecorder> activity_recorder();

}  // namespace zeroplan::runtime::cuda
