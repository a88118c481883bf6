// Traces of PyTorch's profiler (Kineto) in Chrome's format: {"traceEvents": [...]}, of torch 1.8 to
// 2.x; a bare array of events, too.
//
//   kernels      events of category "kernel", by name and by the operation and shapes that launched
//                them ("External id" of the kernel and of a "cpu_op" with "Input Dims")
//   collectives  kernels with "Collective name", "In msg nelems", "Out msg nelems", "Group size"
//   and
//                "dtype" (torch 2.2 and newer)
//   memory       "[Memory]" instants with "Total Allocated" and "Total Reserved" of a CUDA device
//   steps        "ProfilerStep#N" spans of the host
//   machine      deviceProperties, distributedInfo
// Source: kineto libkineto/src/output_json.cpp, pytorch torch/csrc/profiler/collection.cpp,
// torch/csrc/distributed/c10d/ParamCommsUtils.hpp, torch/profiler/profiler.py:step.
#pragma once

#include "base/json.hpp"
#include "evidence/importers/run_findings.hpp"

namespace zeroplan::evidence {

bool is_kineto_trace(const Json& document);
void read_kineto_trace(const Json& document, RunFindings& findings);

}  // namespace zeroplan::evidence
