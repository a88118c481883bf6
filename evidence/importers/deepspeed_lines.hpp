// Lines that DeepSpeed writes into a training log.
#pragma once

#include <memory>

#include "evidence/importers/line_reader.hpp"

namespace zeroplan::evidence {

// see_memory_usage: a message, then
//   MA 1.9 GB         Max_MA 1.9 GB         CA 2.14 GB         Max_CA 2 GB
//   CPU Virtual Memory:  used = 72.17 GB, percent = 7.2%
// GB is 2^30. The peaks are those since the last such line, so their largest counts; they count
// once a line has been printed outside initialisation. Source: deepspeed/runtime/utils.py:
// see_memory_usage, equal in 0.3 to 0.19 but for the logger's prefix.
std::unique_ptr<LogLineReader> deepspeed_memory_lines();

// wall_clock_breakdown: "time (ms) | fwd_microstep: 6567.68 | bwd_microstep: ..." of a micro-step,
// "time (ms) | fwd: ... | bwd: ... | bwd_inner: ... | step: ..." of a step; forward_, backward_ up
// to 0.10. Source: deepspeed/utils/timer.py:SynchronizedWallClockTimer.log, runtime/engine.py:
// EngineTimers, zero/stage_1_and_2.py:log_timers. Pipelines print "steps: 10 loss: ... iter time
// (s):
// ... samples/sec: ..." (runtime/pipe/engine.py:train_batch).
std::unique_ptr<LogLineReader> deepspeed_timer_lines();

// The throughput timer: "epoch=0/micro_step=8/global_step=2, RunningAvgSamplesPerSec=..,
// CurrSamplesPerSec=.., MemAllocated=..GB, MaxMemAllocated=..GB"; "0/50, SamplesPerSec=.." in old
// releases. Rates are of the whole job. Source: deepspeed/utils/timer.py:ThroughputTimer.stop.
std::unique_ptr<LogLineReader> deepspeed_throughput_lines();

// The flops profiler's summary: "params per GPU:", "fwd latency:", "iter latency:", "batch size per
// GPU:" and so on, one of a line. Source: deepspeed/profiling/flops_profiler/profiler.py:
// FlopsProfiler.print_model_profile; labels differ by release.
std::unique_ptr<LogLineReader> deepspeed_flops_lines();

// The configuration: "json = {" and the lines of the document, "world_size ........ 8" and
// "DeepSpeed info: version=0.16.4". Source: deepspeed/runtime/config.py:DeepSpeedConfig.print,
// print_user_config (numbers above 1000 as 5.000000e+08), deepspeed/__init__.py:initialize.
std::unique_ptr<LogLineReader> deepspeed_config_lines();

}  // namespace zeroplan::evidence
