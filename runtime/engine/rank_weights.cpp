// Weights and the optimizer's state: where they stand on this rank, and what fills them.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "runtime/data/initial_weights.hpp"
#include "runtime/engine/rank_engine.hpp"
#include "runtime/engine/tensor_ops.hpp"

namespace zeroplan::runtime {

void RankEngine::fill_weights(
    std::int32_t parameter, Elements first, std::byte* to, DType dtype, Elements count) {
  if (setup_.weights) {
    fill(setup_.weights, parameter, first, to, dtype, count);
    return;
  }
  const Parameter& what = setup_.model->parameters[static_cast<std::size_t>(parameter)];
  const ValueReader drawn = [&](std::int32_t, Elements begin, std::span<float> values) {
    initial_weights(what, setup_.seed, begin, values);
  };
  fill(drawn, parameter, first, to, dtype, count, drawing_.get());
}

// Read and converted on the host, block by block; by threads where the reader may be called by
// several at once: to draw a number takes as long as tens of bytes' copy, and the GPU waits.
void RankEngine::fill(const ValueReader& reader,
                      std::int32_t parameter,
                      Elements first,
                      std::byte* to,
                      DType dtype,
                      Elements count,
                      ThreadPool* threads) {
  constexpr std::int64_t kBlock = 1 << 16;
  constexpr std::int64_t kBlocks = 64;  // at once
  const std::int64_t most = threads == nullptr ? kBlock : kBlocks * kBlock;
  const auto room = static_cast<std::size_t>(std::min(most, count.count()));
  std::vector<float> values(room);
  std::vector<std::byte> converted(room * static_cast<std::size_t>(width(dtype)));
  for (std::int64_t begin = 0; begin < count.count(); begin += most) {
    const std::int64_t size = std::min(most, count.count() - begin);
    const auto block = [&](std::int64_t index) {
      const std::int64_t at = index * kBlock;
      const Elements elements = Elements::of(std::min(kBlock, size - at));
      const std::span<float> drawn(values.data() + at, static_cast<std::size_t>(elements.count()));
      reader(parameter, first + Elements::of(begin + at), drawn);
      convert(reinterpret_cast<const std::byte*>(drawn.data()),
              DType::fp32,
              advance(converted.data(), Elements::of(at), dtype),
              dtype,
              elements);
    };
    if (threads == nullptr) {
      block(0);
    } else {
      threads->run(ceil_div(size, kBlock), block);
    }
    device_.upload(
        advance(to, Elements::of(begin), dtype), converted.data(), Elements::of(size) * dtype);
  }
}

// Stage 3: partitions one behind the other, sub-group by sub-group; on the host in one buffer for
// each optimizer group.
void RankEngine::make_partitioned_weights() {
  const DType dtype = config_.model_dtype;
  const int ranks = partition_ranks(config_);
  const int rank = partition_rank(config_);
  const bool on_host = config_.offload_parameter.device != OffloadDevice::none;
  const bool swapped = swapped_weights_.has_value();
  partition_offset_.resize(parameters_.size());
  Elements offset;
  std::byte* to = on_host ? nullptr : held_[find(BufferName::lp_param_buffer, -1)].data();
  int group = -1;
  int index = 0;
  for (const SubGroup& sub : sub_groups(config_, parameters_)) {
    if (on_host && !swapped && sub.group != group)
      to = held_[find(BufferName::fp16_partitioned_groups, index)].data();
    group = sub.group;
    ++index;
    for (const int p : sub.parameters) {
      const auto at = static_cast<std::size_t>(p);
      partition_offset_[at] = offset;
      offset += part(p);
      if (swapped) continue;
      weights_[at] = to;
      fill_weights(p, part(p) * rank, to, dtype, real_partition_numel(numel(p), ranks, rank));
      to = advance(to, part(p), dtype);
    }
  }
  if (swapped) make_swapped_weights();
}

void RankEngine::make_weights() {
  const DType dtype = config_.model_dtype;
  weights_.assign(parameters_.size(), nullptr);
  if (config_.stage == 3) {
    make_partitioned_weights();
    return;
  }
  const OptimizerWrapper wrapper = optimizer_wrapper(config_);
  const bool flat = wrapper != OptimizerWrapper::plain;
  const bool sharded = wrapper == OptimizerWrapper::zero12;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const auto parameter = static_cast<std::int32_t>(p);
    if (flat && parameters_[p].trainable) {
      const ParameterPlace& place = partition_.places[p];
      const std::size_t group =
          find(sharded ? BufferName::bit16_groups_flat : BufferName::fp16_groups_flat, place.group);
      weights_[p] = advance(held_[group].data(), place.offset, dtype);
    } else {
      weights_[p] = held_[find(BufferName::module_parameters, parameter)].data();
    }
    fill_weights(parameter, Elements::zero(), weights_[p], dtype, parameters_[p].numel);
  }
  if (!sharded) return;
  owned_ = owned_slices(partition_, partition_rank(config_));
  Elements offset;
  for (const OwnedSlice& slice : owned_) {
    kept_offset_.push_back(offset);
    offset += numel(slice.parameter);
  }
}

// What the optimizer updates: a parameter, a flat group (stage 0), a rank's part of one (1, 2), a
// sub-group (3).
void RankEngine::make_units() {
  const OptimizerWrapper wrapper = optimizer_wrapper(config_);
  if (wrapper == OptimizerWrapper::plain) {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      if (!parameters_[p].trainable) continue;
      const auto parameter = static_cast<std::int32_t>(p);
      add_unit(weights_[p], nullptr, parameters_[p].numel, parameter);
      add_part(parameter, Elements::zero(), Elements::zero(), parameters_[p].numel);
    }
    return;
  }
  if (wrapper == OptimizerWrapper::zero12) {
    make_partition_units();
  } else if (config_.stage == 3) {
    make_sub_group_units();
  } else {
    for (std::size_t g = 0; g < partition_.groups.size(); ++g) {
      const FlatGroup& group = partition_.groups[g];
      std::byte* master = held_[find(BufferName::fp32_groups_flat, static_cast<int>(g))].data();
      const std::int32_t first = group.parameters.front();
      add_unit(master, weights_[static_cast<std::size_t>(first)], group.numel, first);
      for (const int p : group.parameters) {
        const ParameterPlace& place = partition_.places[static_cast<std::size_t>(p)];
        add_part(p, Elements::zero(), place.offset, numel(p));
      }
    }
  }
  fill_masters();
}

void RankEngine::add_unit(std::byte* master,
                          std::byte* weights,
                          Elements elements,
                          std::int32_t parameter) {
  std::vector<std::size_t> first;
  std::vector<std::size_t> second;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].name != BufferName::state) continue;
    (buffers_[i].suffix == "[exp_avg]" ? first : second).push_back(i);
  }
  Unit unit;
  unit.master = master;
  unit.first_moment = first[units_.size()];
  unit.second_moment = second[units_.size()];
  unit.elements = elements;
  unit.weights = weights;
  // Hugging Face's second group holds vectors alone, and does not decay.
  const int group = parameters_[static_cast<std::size_t>(parameter)].group;
  unit.decays = std::any_of(parameters_.begin(), parameters_.end(), [&](const EngineParameter& p) {
    return p.trainable && p.group == group && p.matrix;
  });
  units_.push_back(std::move(unit));
}

void RankEngine::add_part(std::int32_t parameter,
                          Elements first,
                          Elements offset,
                          Elements elements) {
  units_.back().parts.push_back({parameter, first, offset, elements});
}

void RankEngine::fill_masters() {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = units_[i];
    const auto fill_unit = [&](std::byte* master) {
      for (const Unit::Part& part : unit.parts) {
        std::byte* to = advance(master, part.offset, config_.master_dtype);
        fill_weights(part.parameter, part.first, to, config_.master_dtype, part.elements);
      }
    };
    if (unit.swapped) {
      write_swapped(static_cast<int>(i), OptimizerSwapper::master, fill_unit);
    } else {
      fill_unit(unit.master);
    }
  }
}

// Zero, from the first step on.
void RankEngine::make_moments() {
  if (updates_ > 0) return;
  allocate_buffers(BufferLifetime::first_step_on);
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (!units_[i].swapped) continue;
    states_->reserve(static_cast<int>(i), OptimizerSwapper::first_moment);
    states_->reserve(static_cast<int>(i), OptimizerSwapper::second_moment);
  }
}

void RankEngine::make_partition_units() {
  const int rank = partition_rank(config_);
  for (std::size_t g = 0; g < partition_.groups.size(); ++g) {
    const FlatGroup& group = partition_.groups[g];
    const auto index = static_cast<int>(g);
    std::byte* flat = held_[find(BufferName::bit16_groups_flat, index)].data();
    add_unit(held_[find(BufferName::single_partition_of_fp32_groups, index)].data(),
             advance(flat, group.partition * rank, config_.model_dtype),
             group.partition,
             group.parameters.front());
    for (const OwnedSlice& slice : owned_) {
      if (slice.group != index) continue;
      add_part(slice.parameter, slice.start, slice.partition_offset, slice.numel);
    }
    if (!offloads()) continue;
    units_.back().gradient = find(BufferName::single_partition_of_fp32_groups, index, ".grad");
    units_.back().staged = find(BufferName::param_buffer_of_bit16_for_cpu_offload_groups, index);
  }
}

void RankEngine::make_sub_group_units() {
  const int ranks = partition_ranks(config_);
  const int rank = partition_rank(config_);
  int index = 0;
  for (const SubGroup& group : sub_groups(config_, parameters_)) {
    std::byte* master = held_[find(BufferName::fp32_partitioned_groups_flat, index)].data();
    const std::int32_t first = group.parameters.front();
    add_unit(master, weights_[static_cast<std::size_t>(first)], group.numel, first);
    units_.back().swapped = states_ && states_->swaps(index);
    if (offloads())
      units_.back().gradient = find(BufferName::fp32_partitioned_groups_flat, index, ".grad");
    ++index;
    Elements offset;
    for (const int p : group.parameters) {
      add_part(p, part(p) * rank, offset, real_partition_numel(numel(p), ranks, rank));
      offset += part(p);
    }
  }
}

std::vector<StateSlice> RankEngine::state() const {
  std::vector<StateSlice> slices;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = units_[i];
    const DType dtype = config_.master_dtype;
    const auto values = [&](std::byte* data, OptimizerSwapper::Tensor tensor, Elements at) {
      StateValues where{.dtype = dtype};
      if (data != nullptr) where.data = advance(data, at, dtype);
      const bool made = tensor == OptimizerSwapper::master || updates_ > 0;
      if (unit.swapped && made) {
        where.swapped = states_->offset(static_cast<int>(i), tensor) + at * DType::fp32;
      }
      return where;
    };
    std::byte* first = held_[unit.first_moment].data();
    std::byte* second = held_[unit.second_moment].data();
    for (const Unit::Part& part : unit.parts) {
      if (part.elements == Elements::zero()) continue;
      const Elements at = part.offset;
      slices.push_back({.parameter = part.parameter,
                        .first = part.first,
                        .elements = part.elements,
                        .master = values(unit.master, OptimizerSwapper::master, at),
                        .first_moment = values(first, OptimizerSwapper::first_moment, at),
                        .second_moment = values(second, OptimizerSwapper::second_moment, at)});
    }
  }
  return slices;
}

void RankEngine::read(const StateValues& from, std::span<float> to) const {
  const Bytes bytes = Bytes::of(static_cast<std::int64_t>(to.size_bytes()));
  if (from.swapped) {
    auto* data = reinterpret_cast<std::byte*>(to.data());
    states_file_->wait(states_file_->read(*from.swapped, data, bytes));
    return;
  }
  if (from.dtype == DType::fp32) {
    device_.download(to.data(), from.data, bytes);
    return;
  }
  const Elements count = Elements::of(static_cast<std::int64_t>(to.size()));
  std::vector<std::byte> own(static_cast<std::size_t>((count * from.dtype).count()));
  device_.download(own.data(), from.data, count * from.dtype);
  convert(own.data(), from.dtype, reinterpret_cast<std::byte*>(to.data()), DType::fp32, count);
}

// The moments of an earlier run; its weights came with setup_.weights.
void RankEngine::resume() {
  const ResumedState& from = *setup_.resumed;
  updates_ = from.updates;
  if (scaler_.dynamic() && from.loss_scaler) scaler_.resume(*from.loss_scaler);
  if (updates_ == 0) return;
  updates_ = 0;  // the moments come now
  make_moments();
  updates_ = from.updates;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = units_[i];
    const auto moment =
        [&](const ValueReader& reader, std::size_t held, OptimizerSwapper::Tensor tensor) {
          const auto fill_unit = [&](std::byte* data) {
            for (const Unit::Part& part : unit.parts) {
              std::byte* to = advance(data, part.offset, config_.master_dtype);
              fill(reader, part.parameter, part.first, to, config_.master_dtype, part.elements);
            }
          };
          if (unit.swapped) {
            write_swapped(static_cast<int>(i), tensor, fill_unit);
          } else {
            fill_unit(held_[held].data());
          }
        };
    moment(from.first_moment, unit.first_moment, OptimizerSwapper::first_moment);
    moment(from.second_moment, unit.second_moment, OptimizerSwapper::second_moment);
  }
}

}  // namespace zeroplan::runtime
