// Lines that Megatron-LM and Megatron-DeepSpeed write into a training log.
#pragma once

#include <memory>

#include "evidence/importers/line_reader.hpp"

namespace zeroplan::evidence {

// " iteration   10/ 5000 | consumed samples: 1280 | elapsed time per iteration (ms): 13065.4 | ...
// |" of every release; " iteration= 1/ 317892 | ... | elapsed_time_per_iteration_ms=108893.2 |" of
// Megatron-DeepSpeed's key=value form. Source: megatron/training.py:training_log.
std::unique_ptr<LogLineReader> megatron_iteration_lines();

// "[Rank 0] (after 1 iterations) memory (MB) | allocated: A | max allocated: M | reserved: R | max
// reserved: X", MB of 2^20; ranks that print at once may share a line. Printed once, so what grows
// later is not in it. Source: megatron/utils.py:report_memory.
std::unique_ptr<LogLineReader> megatron_memory_lines();

// "  hidden_size ..................................... 4096" between "--- arguments ---" and "---
// end of arguments ---". Source: megatron/arguments.py:_print_args.
std::unique_ptr<LogLineReader> megatron_argument_lines();

}  // namespace zeroplan::evidence
