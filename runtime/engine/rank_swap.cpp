// What a rank keeps on a drive: swap files, their pools, and the two swappers. Which buffers there
// are says engine_buffers(), as everywhere.
#include <algorithm>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "model/engine/swapping.hpp"
#include "runtime/engine/rank_engine.hpp"
#include "runtime/engine/tensor_ops.hpp"

namespace zeroplan::runtime {
namespace {

constexpr const char* kStatesPath = "/zero_optimization/offload_optimizer/nvme_path";
constexpr const char* kWeightsPath = "/zero_optimization/offload_param/nvme_path";

// In stages 1 and 2 the device nvme means cpu.
bool swaps_states(const EngineConfig& config) {
  return config.stage == 3 && config.offload_optimizer.device == OffloadDevice::nvme;
}

bool swaps_weights(const EngineConfig& config) {
  return config.stage == 3 && config.offload_parameter.device == OffloadDevice::nvme;
}

}  // namespace

void require_swap_folders(const EngineConfig& config, const SwapSetup& swap) {
  if (swaps_states(config)) require_swap_folder(swap.optimizer_folder, kStatesPath);
  if (swaps_weights(config)) require_swap_folder(swap.parameter_folder, kWeightsPath);
}

// Before there are buffers: room on the drive is made when they are.
void RankEngine::open_swap_files() {
  const SwapSetup& swap = setup_.swap;
  const auto open = [&](const std::string& folder, const char* pointer, const char* what) {
    return std::make_unique<SwapFile>(
        SwapOptions{.folder = folder,
                    .pointer = pointer,
                    .what = std::string(what) + " of rank " + std::to_string(config_.rank),
                    .io = swap.io,
                    .engine = swap.engine});
  };
  if (swaps_states(config_)) {
    states_file_ = open(swap.optimizer_folder, kStatesPath, "optimizer states");
  }
  if (swaps_weights(config_)) {
    weights_file_ = open(swap.parameter_folder, kWeightsPath, "weights");
  }
}

// Behind the resident buffers, of which the pools are some.
void RankEngine::make_swappers() {
  const std::vector<SubGroup> groups = sub_groups(config_, parameters_);
  if (states_file_) {
    const OptimizerSwap swap = optimizer_swap(config_, parameters_, groups);
    const Buffer& pool = held_[find(BufferName::optimizer_swap_buffers, -1)];
    states_.emplace(
        *states_file_,
        device_,
        setup_.timeline,
        OptimizerSwapper::Pool{pool.data(), swap.buffer * config_.master_dtype, swap.buffers},
        config_);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (!swap.swapped[g]) continue;
      std::vector<OptimizerSwapper::Part> parts;
      Elements offset;
      for (const int p : groups[g].parameters) {
        parts.push_back({p, offset, part(p)});
        offset += part(p);
      }
      const auto group = static_cast<int>(g);
      states_->add_group(group, groups[g].numel, parts);
      states_->reserve(group, OptimizerSwapper::master);
      states_->reserve(group, OptimizerSwapper::gradient);
    }
  }
  if (!weights_file_) return;
  const ParameterSwap swap = parameter_swap(config_, parameters_, groups);
  const OffloadParameterConfig& offload = config_.offload_parameter;
  const DType dtype = config_.model_dtype;
  const auto data_of = [&](BufferName name) {
    const auto found =
        std::find_if(buffers_.begin(), buffers_.end(), [&](const EngineBuffer& buffer) {
          return buffer.name == name;
        });
    const auto at = static_cast<std::size_t>(found - buffers_.begin());
    return found == buffers_.end() ? nullptr : held_[at].data();
  };
  swapped_weights_.emplace(
      *weights_file_,
      device_,
      setup_.timeline,
      ParameterSwapper::Pool{.data = data_of(BufferName::param_swap_buffers),
                             .buffer = io_aligned(offload.buffer_size, dtype, config_) * dtype,
                             .buffers = offload.buffer_count,
                             .staging = data_of(BufferName::param_swap_staging),
                             .staging_bytes = swap.write_back * dtype});
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto p = static_cast<std::int32_t>(i);
    if (swap.read[i] > Elements::zero()) swapped_weights_->add(p, part(p) * dtype);
  }
}

// Where a partition stays between uses that is not on the drive: in its optimizer group's buffer
// where all of its sub-group has room there, else alone. Null: on the drive.
std::byte* RankEngine::host_weights(std::int32_t parameter) const {
  const std::vector<SubGroup> groups = sub_groups(config_, parameters_);
  const ParameterSwap swap = parameter_swap(config_, parameters_, groups);
  Elements offset;
  int buffer = 0;  // of the optimizer group
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (g > 0 && groups[g].group != groups[g - 1].group) {
      offset = Elements::zero();
      ++buffer;
    }
    for (const int p : groups[g].parameters) {
      if (p == parameter) {
        if (swapped_weights_->swaps(p)) return nullptr;
        if (!swap.kept[g]) return held_[find(BufferName::small_ds_tensor, p)].data();
        const std::size_t flat = find(BufferName::param_groups_fp16_flat_cpu_memory, buffer);
        return advance(held_[flat].data(), offset, config_.model_dtype);
      }
      offset += part(p);
    }
  }
  ZP_CHECK(false, "a weight has a place");
}

void RankEngine::make_swapped_weights() {
  const DType dtype = config_.model_dtype;
  const int ranks = partition_ranks(config_);
  const int rank = partition_rank(config_);
  for (const SubGroup& group : sub_groups(config_, parameters_)) {
    for (const int p : group.parameters) {
      std::byte* to = host_weights(p);
      weights_[static_cast<std::size_t>(p)] = to;
      const bool on_drive = to == nullptr;
      if (on_drive) to = swapped_weights_->borrow(p);
      fill_weights(p, part(p) * rank, to, dtype, real_partition_numel(numel(p), ranks, rank));
      if (on_drive) swapped_weights_->write_now(p);
    }
  }
}

// --- the optimizer's states

// All of a swapped tensor, as `fill` makes it of zeros.
void RankEngine::write_swapped(int group,
                               OptimizerSwapper::Tensor tensor,
                               const std::function<void(std::byte* to)>& fill_values) {
  fill_values(reinterpret_cast<std::byte*>(states_->borrow(group)));
  states_->write_now(group, tensor);
}

void RankEngine::swap_states(const EngineAction& action) {
  Unit& unit = units_[static_cast<std::size_t>(action.group)];
  if (action.kind == ActionKind::swap_in) {
    unit.loaded = states_->swap_in(action.group, unswapped_gradients());
    unit.master = reinterpret_cast<std::byte*>(unit.loaded.master);
    return;
  }
  states_->swap_out(action.group, action.host_waits);
  unit.loaded = {};
  unit.master = nullptr;
}

// What swapped gradients leave on the device; null where they leave nothing.
std::byte* RankEngine::unswapped_gradients() const {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].name == BufferName::unswapped_gradients) return held_[i].data();
  }
  return nullptr;
}

void RankEngine::update_swapped(int group) {
  const Unit& unit = units_[static_cast<std::size_t>(group)];
  const double factor = gradient_factor();
  for (const OptimizerSwapper::Stretch& stretch : states_->stretches(group)) {
    const std::int64_t at = stretch.offset.count();
    const auto bytes = [](float* data) { return reinterpret_cast<std::byte*>(data); };
    const float* gradient = unit.loaded.gradient + stretch.gradient.count();
    device_.adamw({.weights = bytes(unit.loaded.master + at),
                   .first_moment = bytes(unit.loaded.first_moment + at),
                   .second_moment = bytes(unit.loaded.second_moment + at),
                   .gradient = reinterpret_cast<const std::byte*>(gradient),
                   .elements = stretch.elements},
                  options_of(unit),
                  updates_,
                  factor);
  }
}

// The new weights of a sub-group go where they stay: the host, or the drive.
void RankEngine::update_swapped_weights(const Unit& unit) {
  const DType dtype = config_.model_dtype;
  for (const Unit::Part& part_of : unit.parts) {
    const std::int32_t p = part_of.parameter;
    std::byte* to = weights_[static_cast<std::size_t>(p)];
    if (to == nullptr) to = swapped_weights_->stage(p);
    const std::byte* from = advance(unit.master, part_of.offset, config_.master_dtype);
    device_.convert(from, config_.master_dtype, to, dtype, part(p));
  }
}

void RankEngine::finish_swapping() {
  if (states_) states_->finish();
  if (swapped_weights_) swapped_weights_->finish();
}

// --- fetches

// Copies this rank's partition to the device.
void RankEngine::copy_own_part(std::int32_t parameter, DType dtype, std::byte* to) {
  const bool on_drive = swapped_weights_ && swapped_weights_->swaps(parameter);
  const std::byte* from =
      on_drive ? swapped_weights_->bring(parameter) : weights_[static_cast<std::size_t>(parameter)];
  device_.convert(from, dtype, to, dtype, part(parameter));
  if (on_drive) swapped_weights_->drop(parameter);
}

}  // namespace zeroplan::runtime
