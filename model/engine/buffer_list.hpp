// Internal to model/engine/buffers*.cpp: appends buffers with the rounding of their place.
#pragma once

#include <vector>

#include "model/engine/engine_buffer.hpp"
#include "model/engine/optimizer_states.hpp"
#include "model/engine/partition.hpp"
#include "model/releases.hpp"

namespace zeroplan::detail {

class BufferList {
 public:
  explicit BufferList(const EngineConfig& config) : config_(config) {}

  // Adds a storage of exactly `elements`; the caller may adjust what it returns. A buffer without
  // elements is not added, and a scratch copy is returned.
  EngineBuffer& add(BufferName name,
                    int index,
                    Elements elements,
                    DType dtype,
                    BufferPlace place,
                    MemoryCategory category,
                    BufferLifetime lifetime) {
    EngineBuffer buffer;
    buffer.name = name;
    buffer.index = index;
    buffer.elements = elements;
    buffer.dtype = dtype;
    buffer.place = place;
    buffer.category = category;
    buffer.lifetime = lifetime;
    set_bytes(buffer, elements * dtype);
    if (elements == Elements::zero()) return scratch_ = buffer;
    buffers_.push_back(buffer);
    return buffers_.back();
  }

  void set_bytes(EngineBuffer& buffer, Bytes bytes) const {
    buffer.bytes = bytes;
    buffer.allocated = buffer.place == BufferPlace::host_pinned
                           ? pinned_allocation(bytes, config_.pin_backend)
                           : bytes;
  }

  std::vector<EngineBuffer> take() { return std::move(buffers_); }
  const EngineConfig& config() const { return config_; }

 private:
  const EngineConfig& config_;
  std::vector<EngineBuffer> buffers_;
  EngineBuffer scratch_;
};

// Host memory of the offloaded optimizer.
inline BufferPlace host_place(bool pinned) {
  return pinned ? BufferPlace::host_pinned : BufferPlace::host_pageable;
}

inline bool offloads_optimizer(const EngineConfig& config) {
  return config.offload_optimizer.device != OffloadDevice::none;
}

// From when on the optimizer's states of a ZeRO wrapper exist. Up to 0.12 a real step on zero
// gradients made them at init (initialize_optimizer_states; bf16_optimizer.py the same).
inline BufferLifetime states_lifetime(const EngineConfig& config) {
  const bool at_init =
      states_at_init(config.optimizer) || !config.acts(ReleaseRule::makes_states_at_step);
  return at_init ? BufferLifetime::resident : BufferLifetime::first_step_on;
}

// "state[p-1][exp_avg]": state tensors of one flat tensor. parameter: -1, or the module parameter
// that the optimizer updates directly.
void add_states(
    BufferList& list, int parameter, Elements numel, BufferPlace place, BufferLifetime lifetime);

// One entry per parameter of the group: path_of(name)[group][i]suffix. With `parameters`, those
// that no gradient reaches are left out.
void add_per_parameter(BufferList& list,
                       BufferName name,
                       std::string_view suffix,
                       int group,
                       std::span<const int> members,
                       const FlatPartition& partition,
                       DType dtype,
                       MemoryCategory category,
                       BufferLifetime lifetime,
                       std::span<const EngineParameter> parameters = {});

// Weights that no optimizer group holds: frozen ones, and all under the plain optimizer.
void add_module_parameters(BufferList& list,
                           std::span<const EngineParameter> parameters,
                           bool frozen_only);

void add_dense_buffers(BufferList& list, std::span<const EngineParameter> parameters);
void add_bf16_optimizer_buffers(BufferList& list, std::span<const EngineParameter> parameters);
void add_zero12_buffers(BufferList& list, std::span<const EngineParameter> parameters);
void add_zero3_buffers(BufferList& list, std::span<const EngineParameter> parameters);

}  // namespace zeroplan::detail
