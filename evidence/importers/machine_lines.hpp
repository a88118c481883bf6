// What tools print about the machine: nccl-tests and nvidia-smi.
#pragma once

#include <memory>

#include "evidence/importers/line_reader.hpp"

namespace zeroplan::evidence {

// nccl-tests' tables. A row:
//   size(B) count(elements) type redop root  time(us) algbw busbw #wrong  time(us) algbw busbw
//   #wrong
// out of place, then in place; releases before 2.12 print "error" for #wrong and no root for some
// operations. Which operation it is stands in "# Collective test starting: all_reduce_perf" (2.17
// and newer) or in the command above it; else busbw / algbw tells. Ranks and nodes are those of "#
// Rank 0 Group 0 Pid 4711 on HOST device 0 [0x07] NVIDIA A100-SXM4-40GB". Sizes are of the whole
// tensor. Source: nccl-tests src/common.cu:run, util.cu:writeBenchmarkLineBody; doc/PERFORMANCE.md.
std::unique_ptr<LogLineReader> nccl_tests_lines();

// nvidia-smi --query-gpu=... --format=csv, with and without nounits, and the table it prints
// without options ("| N/A 34C P0 60W / 400W | 38213MiB / 40960MiB | ..."). Counts all processes of
// the GPU. Source: nvidia-smi --help-query-gpu.
std::unique_ptr<LogLineReader> nvidia_smi_lines();

}  // namespace zeroplan::evidence
