#include "model/engine/buffers.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "model/engine/buffer_list.hpp"
#include "model/engine/optimizer_states.hpp"

namespace zeroplan {

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

}  // namespace zeroplan
