// Lines of a training program that measures its own steps, one document a line:
//   {"zeroplan_step": 12, "steps": 1000, "allocated_bytes": N, "peak_allocated_bytes": N,
//    "peak_reserved_bytes": N, "seconds": N}
// `allocated_bytes` is what the GPU holds between steps, `seconds` the time of one; all but the
// first may be missing. Source: python/zeroplan/_watch.py, which has its callbacks write them.
#pragma once

#include <memory>

#include "evidence/importers/line_reader.hpp"

namespace zeroplan::evidence {

std::unique_ptr<LogLineReader> step_lines();

}  // namespace zeroplan::evidence
