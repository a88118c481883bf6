#include "model/engine/buffers.hpp"

#include <algorithm>
#include <bit>

#include "model/check.hpp"
#include "model/engine/buffer_list.hpp"
#include "model/engine/optimizer_states.hpp"

namespace zeroplan {

namespace {

void append_index(std::string& text, int index) {
  if (index < 0) return;
  text += '[';
  text += std::to_string(index);
  text += ']';
}

}  // namespace

std::string path(const EngineBuffer& buffer) {
  std::string text(path_of(buffer.name));
  if (buffer.name == BufferName::state) {
    text += "[p";
    text += std::to_string(buffer.index);
    text += ']';
  } else {
    append_index(text, buffer.index);
    append_index(text, buffer.second_index);
  }
  text += buffer.suffix;
  return text;
}

bool exists(BufferLifetime lifetime, EngineMoment moment, int gradient_accumulation_steps) {
  const bool stepped = moment == EngineMoment::before_step || moment == EngineMoment::after_step;
  const bool before =
      moment == EngineMoment::before_step || moment == EngineMoment::before_first_step;
  const bool inside_window =
      moment == EngineMoment::after_first_backward && gradient_accumulation_steps > 1;
  // With one micro-step a window the first backward is the boundary's.
  const bool boundary_done =
      before || (moment == EngineMoment::after_first_backward && gradient_accumulation_steps == 1);
  switch (lifetime) {
    case BufferLifetime::resident:
      return true;
    case BufferLifetime::first_backward_on:
      return moment != EngineMoment::initialised;
    case BufferLifetime::first_step_on:
    case BufferLifetime::between_steps:
      return stepped;
    case BufferLifetime::window:
      return inside_window;
    case BufferLifetime::window_to_step:
      return inside_window || boundary_done;
    case BufferLifetime::window_to_next_backward:
      return moment != EngineMoment::initialised;
    case BufferLifetime::boundary_to_next_backward:
      return boundary_done || moment == EngineMoment::after_step;
    case BufferLifetime::boundary_to_step:
    case BufferLifetime::after_boundary:
      return boundary_done;
    case BufferLifetime::backward:
    case BufferLifetime::boundary_backward:
    case BufferLifetime::later_backward:
    case BufferLifetime::step:
      return false;
  }
  return false;
}

Bytes pinned_allocation(Bytes requested, PinBackend backend) {
  if (backend == PinBackend::native || requested == Bytes::zero()) return requested;
  return Bytes::of(
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(requested.count()))));
}

std::vector<EngineBuffer> engine_buffers(const EngineConfig& config,
                                         std::span<const EngineParameter> parameters) {
  detail::BufferList list(config);
  switch (optimizer_wrapper(config)) {
    case OptimizerWrapper::plain:
    case OptimizerWrapper::fp16_fused:
    case OptimizerWrapper::fp16_unfused:
      detail::add_dense_buffers(list, parameters);
      break;
    case OptimizerWrapper::bf16_optimizer:
      detail::add_bf16_optimizer_buffers(list, parameters);
      break;
    case OptimizerWrapper::zero12:
      detail::add_zero12_buffers(list, parameters);
      break;
    case OptimizerWrapper::zero3:
    case OptimizerWrapper::mics:
      detail::add_zero3_buffers(list, parameters);
      break;
  }
  return list.take();
}

std::vector<int> distinct_ranks(const EngineConfig& config,
                                std::span<const EngineParameter> parameters) {
  if (optimizer_wrapper(config) != OptimizerWrapper::zero12 || config.data_parallel_ranks == 1) {
    return {0};
  }
  const FlatPartition partition = flat_partition(config, parameters);
  std::vector<int> ranks = {0, partition.ranks - 1};
  int largest = -1;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (partition.places[i].group < 0) continue;
    if (largest < 0 || parameters[i].numel > parameters[static_cast<std::size_t>(largest)].numel) {
      largest = static_cast<int>(i);
    }
  }
  if (largest < 0) return {0};
  std::vector<OwnerRun> runs;
  append_owner_runs(partition, largest, runs);
  ranks.push_back(runs.front().owner);
  ranks.push_back(runs.back().owner);
  // Owned gradients count parameters whole: give each parameter's size to every rank it touches.
  // Its first and last owner may hold other parameters too; the owners between hold nothing else.
  std::vector<std::int64_t> owned(static_cast<std::size_t>(partition.ranks));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (partition.places[i].group < 0 || parameters[i].numel == Elements::zero()) continue;
    runs.clear();
    append_owner_runs(partition, static_cast<int>(i), runs);
    for (const OwnerRun& run : runs) {
      owned[static_cast<std::size_t>(run.owner)] += parameters[i].numel.count();
    }
  }
  ranks.push_back(static_cast<int>(std::max_element(owned.begin(), owned.end()) - owned.begin()));
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

int heaviest_rank(const EngineConfig& config, std::span<const EngineParameter> parameters) {
  const std::vector<int> ranks = distinct_ranks(config, parameters);
  if (ranks.size() == 1) return ranks.front();
  int heaviest = 0;
  Bytes most = Bytes::of(-1);
  EngineConfig candidate = config;
  for (int rank : ranks) {
    candidate.rank = rank;
    const Bytes bytes = bytes_at(engine_buffers(candidate, parameters),
                                 BufferPlace::gpu,
                                 EngineMoment::before_step,
                                 config.gradient_accumulation_steps);
    if (bytes > most) {
      most = bytes;
      heaviest = rank;
    }
  }
  return heaviest;
}

Bytes bytes_at(std::span<const EngineBuffer> buffers,
               BufferPlace place,
               EngineMoment moment,
               int gradient_accumulation_steps) {
  Bytes sum;
  for (const EngineBuffer& buffer : buffers) {
    if (buffer.place == place && exists(buffer.lifetime, moment, gradient_accumulation_steps)) {
      sum += buffer.allocated;
    }
  }
  return sum;
}

namespace detail {

void add_states(
    BufferList& list, int parameter, Elements numel, BufferPlace place, BufferLifetime lifetime) {
  const EngineConfig& config = list.config();
  for (const OptimizerState& state : optimizer_states(config.optimizer, numel)) {
    EngineBuffer& buffer = list.add(BufferName::state,
                                    parameter,
                                    state_numel(state, numel),
                                    state_dtype(state, config),
                                    place,
                                    MemoryCategory::optimizer_states,
                                    lifetime);
    buffer.suffix = state.suffix;
  }
}

void add_per_parameter(BufferList& list,
                       BufferName name,
                       std::string_view suffix,
                       int group,
                       std::span<const int> members,
                       const FlatPartition& partition,
                       DType dtype,
                       MemoryCategory category,
                       BufferLifetime lifetime,
                       std::span<const EngineParameter> parameters) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!parameters.empty() && !parameters[static_cast<std::size_t>(members[i])].used) continue;
    EngineBuffer& buffer = list.add(name,
                                    group,
                                    partition.numels[static_cast<std::size_t>(members[i])],
                                    dtype,
                                    BufferPlace::gpu,
                                    category,
                                    lifetime);
    buffer.second_index = static_cast<int>(i);
    buffer.suffix = suffix;
  }
}

void add_module_parameters(BufferList& list,
                           std::span<const EngineParameter> parameters,
                           bool frozen_only) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (frozen_only && parameters[i].trainable) continue;
    list.add(BufferName::module_parameters,
             static_cast<int>(i),
             parameters[i].numel,
             list.config().model_dtype,
             BufferPlace::gpu,
             MemoryCategory::parameters,
             BufferLifetime::resident)
        .held_by_optimizer = false;
  }
}

}  // namespace detail

bool is_waiting_gradient(const EngineBuffer& buffer) {
  const bool waits = buffer.lifetime == BufferLifetime::window ||
                     buffer.lifetime == BufferLifetime::window_to_step ||
                     buffer.lifetime == BufferLifetime::boundary_to_step;
  const bool whole_gradients = buffer.suffix == ".grad" || buffer.name == BufferName::grad_accum ||
                               buffer.name == BufferName::module_gradients;
  return waits && whole_gradients && buffer.category == MemoryCategory::gradients;
}

bool is_kept_gradient(const EngineBuffer& buffer) {
  return buffer.suffix == ".grad" && buffer.lifetime == BufferLifetime::first_backward_on &&
         buffer.place == BufferPlace::gpu;
}

bool is_reduce_bucket(const EngineBuffer& buffer) { return buffer.name == BufferName::ipg_bucket; }

bool is_outside_bucket(const EngineBuffer& buffer) {
  return buffer.name == BufferName::outside_bucket;
}

bool is_unbuffered_gradient(const EngineBuffer& buffer, const EngineConfig& config) {
  const bool contiguous =
      config.contiguous_gradients ||
      (config.stage < 3 && config.offload_optimizer.device != OffloadDevice::none);
  return contiguous && is_outside_bucket(buffer);
}

}  // namespace zeroplan
