#include "model/engine/partition.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.hpp"
#include "model/releases.hpp"

namespace zeroplan {

namespace {

bool is_fused(OptimizerKind kind) {
  // engine.py _configure_fp16_optimizer: isinstance(optimizer, FusedAdam), or fused LAMB's legacy
  // path, which keeps per-parameter masters and is unfused.
  return kind == OptimizerKind::fused_adam;
}

// Trainable parameters by optimizer group, empty groups dropped, each in the optimizer's order.
std::vector<std::vector<int>> trainable_groups(std::span<const EngineParameter> parameters) {
  std::map<int, std::vector<int>> groups;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].trainable) groups[parameters[i].group].push_back(static_cast<int>(i));
  }
  std::vector<std::vector<int>> result;
  result.reserve(groups.size());
  const auto earlier = [&](int a, int b) {
    return parameters[static_cast<std::size_t>(a)].place <
           parameters[static_cast<std::size_t>(b)].place;
  };
  for (auto& [id, members] : groups) {
    if (!std::is_sorted(members.begin(), members.end(), earlier)) {
      std::stable_sort(members.begin(), members.end(), earlier);
    }
    result.push_back(std::move(members));
  }
  return result;
}

// stage_1_and_2.py _round_robin_reorder: parameter i goes to list i mod N; the lists follow each
// other, so that consecutive gradients of backward belong to different ranks.
std::vector<int> round_robin(const std::vector<int>& declared, int ranks) {
  std::vector<int> order;
  order.reserve(declared.size());
  for (std::size_t first = 0; first < declared.size() && first < static_cast<std::size_t>(ranks);
       ++first) {
    for (std::size_t i = first; i < declared.size(); i += static_cast<std::size_t>(ranks)) {
      order.push_back(declared[i]);
    }
  }
  return order;
}

}  // namespace

OptimizerWrapper optimizer_wrapper(const EngineConfig& config) {
  const bool bf16 = config.model_dtype == DType::bf16;
  const bool fp32_accumulation = config.gradient_accumulation_dtype == DType::fp32;
  if (config.stage > 0) {
    // zero_cpu_offload() asks for device cpu, so NVMe does not count (engine.py).
    if (config.stage == 1 && bf16 && fp32_accumulation &&
        config.offload_optimizer.device != OffloadDevice::cpu) {
      // 0.17 compares two constants of the same text and takes the wrapper without ZeRO: weights
      // and states are whole on every rank (engine.py _configure_optimizer, DDP_BFLOAT16).
      if (config.acts(ReleaseRule::stage1_without_zero)) {
        return is_fused(config.optimizer) ? OptimizerWrapper::fp16_fused
                                          : OptimizerWrapper::fp16_unfused;
      }
      return OptimizerWrapper::bf16_optimizer;
    }
    if (config.stage < 3) return OptimizerWrapper::zero12;
    return config.stage3.mics_shard_size > 0 ? OptimizerWrapper::mics : OptimizerWrapper::zero3;
  }
  if (config.model_dtype == DType::fp32) return OptimizerWrapper::plain;
  // bf16 without ZeRO accumulates in fp32 and runs under BF16_Optimizer up to 0.16
  // (engine.py get_data_types, _do_optimizer_sanity_check of v0.12.6 to v0.16.4).
  if (bf16 && (config.pipeline || fp32_accumulation)) return OptimizerWrapper::bf16_optimizer;
  return is_fused(config.optimizer) ? OptimizerWrapper::fp16_fused : OptimizerWrapper::fp16_unfused;
}

bool has_zero_wrapper(const EngineConfig& config) {
  const OptimizerWrapper wrapper = optimizer_wrapper(config);
  return wrapper == OptimizerWrapper::zero12 || wrapper == OptimizerWrapper::zero3 ||
         wrapper == OptimizerWrapper::mics;
}

bool prepares_all_groups(const EngineConfig& config) {
  const OptimizerWrapper wrapper = optimizer_wrapper(config);
  return config.stage == 0 || wrapper == OptimizerWrapper::fp16_fused ||
         wrapper == OptimizerWrapper::fp16_unfused;
}

FlatPartition flat_partition(const EngineConfig& config,
                             std::span<const EngineParameter> parameters) {
  FlatPartition partition;
  partition.ranks = config.data_parallel_ranks;
  partition.places.resize(parameters.size());
  for (const EngineParameter& parameter : parameters) partition.numels.push_back(parameter.numel);
  const bool reorder =
      config.round_robin_gradients && optimizer_wrapper(config) == OptimizerWrapper::zero12;
  for (std::vector<int>& declared : trainable_groups(parameters)) {
    FlatGroup group;
    group.parameters = reorder ? round_robin(declared, partition.ranks) : declared;
    group.declared = std::move(declared);
    for (int index : group.parameters) {
      ParameterPlace& place = partition.places[static_cast<std::size_t>(index)];
      place.group = static_cast<int>(partition.groups.size());
      place.offset = group.numel;
      group.numel += parameters[static_cast<std::size_t>(index)].numel;
    }
    // nccl_start_alignment_factor = 2: partitions start on 4-byte boundaries of 16-bit data.
    group.aligned = Elements::of(round_up(group.numel.count(), 2LL * partition.ranks));
    group.partition = group.aligned / partition.ranks;
    partition.groups.push_back(std::move(group));
  }
  return partition;
}

std::vector<OwnedSlice> owned_slices(const FlatPartition& partition, int rank) {
  std::vector<OwnedSlice> slices;
  for (std::size_t g = 0; g < partition.groups.size(); ++g) {
    const FlatGroup& group = partition.groups[g];
    const std::int64_t begin = group.partition.count() * rank;
    const std::int64_t end = begin + group.partition.count();
    // Offsets ascend in flat order: start at the first parameter that reaches into the partition.
    auto it =
        std::partition_point(group.parameters.begin(), group.parameters.end(), [&](int index) {
          const auto i = static_cast<std::size_t>(index);
          return partition.places[i].offset.count() + partition.numels[i].count() <= begin;
        });
    for (; it != group.parameters.end(); ++it) {
      const auto i = static_cast<std::size_t>(*it);
      const std::int64_t offset = partition.places[i].offset.count();
      if (offset >= end) break;
      const std::int64_t from = std::max(offset, begin);
      const std::int64_t to = std::min(offset + partition.numels[i].count(), end);
      if (to <= from) continue;
      slices.push_back({.parameter = *it,
                        .group = static_cast<int>(g),
                        .start = Elements::of(from - offset),
                        .partition_offset = Elements::of(from - begin),
                        .numel = Elements::of(to - from)});
    }
  }
  return slices;
}

Elements partition_padding(const FlatPartition& partition, int group, int rank) {
  const FlatGroup& flat = partition.groups[static_cast<std::size_t>(group)];
  const std::int64_t begin = flat.partition.count() * rank;
  const std::int64_t real =
      std::clamp<std::int64_t>(flat.numel.count() - begin, 0, flat.partition.count());
  return flat.partition - Elements::of(real);
}

void append_owner_runs(const FlatPartition& partition, int parameter, std::vector<OwnerRun>& runs) {
  const auto i = static_cast<std::size_t>(parameter);
  const ParameterPlace& place = partition.places[i];
  ZP_CHECK(place.group >= 0, "a frozen parameter has no owner");
  const std::int64_t size =
      partition.groups[static_cast<std::size_t>(place.group)].partition.count();
  std::int64_t at = place.offset.count();
  const std::int64_t end = at + partition.numels[i].count();
  while (at < end) {
    const std::int64_t owner = at / size;
    const std::int64_t count = std::min(end, (owner + 1) * size) - at;
    if (!runs.empty() && runs.back().owner == owner) {
      runs.back().numel += Elements::of(count);
    } else {
      runs.push_back({.owner = static_cast<int>(owner), .numel = Elements::of(count)});
    }
    at += count;
  }
}

std::vector<SubGroup> sub_groups(const EngineConfig& config,
                                 std::span<const EngineParameter> parameters) {
  const int ranks = partition_ranks(config);
  const std::int64_t limit = config.stage3.sub_group_size.count();
  std::vector<SubGroup> result;
  const auto groups = trainable_groups(parameters);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    SubGroup current{.group = static_cast<int>(g)};
    for (int index : groups[g]) {
      current.parameters.push_back(index);
      current.numel += partitioned_numel(parameters[static_cast<std::size_t>(index)].numel, ranks);
      if (current.numel.count() >= limit) {
        result.push_back(std::move(current));
        current = SubGroup{.group = static_cast<int>(g)};
      }
    }
    if (!current.parameters.empty()) result.push_back(std::move(current));
  }
  if (config.offload_optimizer.device != OffloadDevice::none) {
    // stage3.py _create_fp32_partitions: sub-group i is on the CPU iff i >= int((1 - ratio) * n).
    const auto on_gpu = static_cast<std::size_t>((1.0 - config.offload_optimizer.ratio) *
                                                 static_cast<double>(result.size()));
    for (std::size_t i = on_gpu; i < result.size(); ++i) result[i].on_host = true;
  }
  return result;
}

PersistentGather persistent_gather(const EngineConfig& config, std::size_t parameters) {
  if (config.stage3.allgather_sequential || parameters == 1) return PersistentGather::sequential;
  return partition_ranks(config) == 1 ? PersistentGather::none : PersistentGather::asynchronous;
}

std::vector<int> persistent_parameters(const EngineConfig& config,
                                       std::span<const EngineParameter> parameters) {
  std::vector<int> persistent;
  Elements total;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Elements numel = parameters[i].numel;
    // The model limit is tested first and ends nothing: later, smaller parameters may still fit.
    if (numel + total > config.stage3.model_persistence_threshold) continue;
    if (numel > config.stage3.parameter_persistence_threshold) continue;
    persistent.push_back(static_cast<int>(i));
    total += numel;
  }
  return persistent;
}

}  // namespace zeroplan
