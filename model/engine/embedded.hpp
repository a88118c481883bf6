// The embedded runtime's engine as an EngineConfig: DeepSpeed's policies (partitions, buckets,
// fetches, steps) under the same knobs, and what the runtime does in its own way because nothing
// asks for DeepSpeed's:
//   - weights and states are made where they stay: no copies while loading and initialising;
//   - norms, overflow scans and the update work in place: no temporaries of the step but the flat
//     gradient of a group and its cast;
//   - gradients are contiguous and accumulate in the model's dtype in stages 0 to 2;
//   - pinned host memory is taken as asked for, not in powers of two;
//   - MiCS reduces gradients within the shard, as it is meant to (engine_config.hpp
//     reduction_ranks()), and gathers as stage 3 does, in buckets.
// The planner's rules read EngineConfig::embedded (transients.cpp), so that a prediction of
// `engine: embedded` and the runtime agree.
#pragma once

#include <span>
#include <vector>

#include "base/diagnostic.hpp"
#include "model/engine/engine_config.hpp"

namespace zeroplan {

// Sets what the runtime does in its own way.
void make_embedded(EngineConfig& config);

// Knobs that the runtime does not carry out, with the value it needs; empty where it runs `config`
// for these parameters.
std::vector<Diagnostic> not_embedded(const EngineConfig& config,
                                     std::span<const EngineParameter> parameters);

}  // namespace zeroplan
