// Every buffer that one rank of a DeepSpeed engine holds besides activations and gathered weights:
// name, place, bytes, category, and from when to when.
//
// The planner's memory model sums this list; the replay command holds it against the tensors found
// in real engines. Storages are listed once, under the attribute path that leads to them; where the
// tensor under that path is a view of a larger storage, `elements` is the view and `bytes` the
// storage. Sources stand at each buffer in buffers_*.cpp (DeepSpeed 0.19.6 and, where the version
// decides, 0.12.6, 0.14.5, 0.16.4, 0.17.6, 0.18.9).
#pragma once

#include <span>
#include <vector>

#include "base/units.hpp"
#include "model/engine/engine_buffer.hpp"
#include "model/engine/engine_config.hpp"

namespace zeroplan {

// All buffers of config.rank.
std::vector<EngineBuffer> engine_buffers(const EngineConfig& config,
                                         std::span<const EngineParameter> parameters);

// Ranks whose buffers or work differ in a way that can decide the peak, ascending, without repeats:
// the first, the owners of the largest parameter's two ends, the rank whose owned gradients hold
// the most elements of parameters cut by its borders, the last. One rank where all are alike.
std::vector<int> distinct_ranks(const EngineConfig& config,
                                std::span<const EngineParameter> parameters);

// The rank of distinct_ranks() with the most bytes on the GPU at the end of the boundary's
// backward.
int heaviest_rank(const EngineConfig& config, std::span<const EngineParameter> parameters);

// Bytes of the buffers at one place, at one moment.
Bytes bytes_at(std::span<const EngineBuffer> buffers,
               BufferPlace place,
               EngineMoment moment,
               int gradient_accumulation_steps);

}  // namespace zeroplan
