// What the rules about a ds_config.json know of its run: ranks, who reads the file, releases.
#pragma once

#include <cstdint>

#include "model/knobs/ds_config.hpp"

namespace zeroplan {

// The run that a configuration is for. Degrees are ranks; all at least 1.
struct RuleContext {
  std::int64_t world_size = 1;  // GPUs of the job
  std::int64_t tensor_parallel = 1;
  std::int64_t sequence_parallel = 1;
  std::int64_t pipeline_parallel = 1;
  ConfigStyle style = ConfigStyle::native;  // who reads the file: DeepSpeed, or the Trainer first
  DeepSpeedVersion deepspeed = kNewestDeepSpeed;
  bool ranks_known = true;    // false: world_size stands for nothing
  Version release{0, 19, 6};  // decides about keys that came or went within `deepspeed`
};

}  // namespace zeroplan
