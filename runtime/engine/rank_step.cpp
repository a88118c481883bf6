// The optimizer's step. Sources: optimizer_step.hpp. Scaling happens inside the update, and scans
// for inf and nan before the actions are written, because they depend on the result.
#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "model/engine/optimizer_step.hpp"
#include "runtime/engine/rank_engine.hpp"
#include "runtime/engine/tensor_ops.hpp"

namespace zeroplan::runtime {

// The gradients that this rank's update reads: data, dtype, elements.
template <typename Body>
void RankEngine::for_each_own_gradient(Body&& body) {
  const bool swaps = config_.stage == 3 && states_.has_value();  // fp32 copies are on the drive
  if (offloads() && config_.stage > 0 && !swaps) {
    for (const Unit& unit : units_) body(held_[unit.gradient].data(), DType::fp32, unit.elements);
  } else if (config_.stage == 0) {
    for (std::size_t p = 0; p < waiting_.size(); ++p) {
      if (waiting_[p]) body(waiting_[p].data(), config_.model_dtype, parameters_[p].numel);
    }
  } else if (config_.stage < 3) {
    for (std::size_t i = 0; i < owned_.size(); ++i) {
      body(kept_slice(i, false), config_.model_dtype, owned_[i].numel);
    }
  } else {
    const std::size_t flat = find(BufferName::grad_partitions_flat_buffer, -1);
    body(held_[flat].data(), config_.gradient_accumulation_dtype, buffers_[flat].elements);
  }
}

bool RankEngine::overflowed() {
  if (!checks_overflow(config_)) return false;
  for_each_own_gradient([&](const std::byte* data, DType dtype, Elements elements) {
    device_.find_overflow(data, dtype, elements);
  });
  double found = device_.take(Scalar::overflow);
  groups_.all().all_reduce(&found, Elements::of(1), ReduceOperation::maximum);
  return found > 0.0;
}

void RankEngine::update(const EngineAction& action) {
  switch (action.kind) {
    case ActionKind::norm:
      take_norm(action);
      break;
    case ActionKind::collective:
      step_collective(action);
      break;
    case ActionKind::flatten:
      flatten_group(action);
      break;
    case ActionKind::cast:
      cast_group(action);
      break;
    case ActionKind::optimizer_step:
      update_group(action.group);
      break;
    case ActionKind::update_weights: {
      const Unit& unit = units_[static_cast<std::size_t>(action.group)];
      if (rounds_weights(unit)) {
        if (!prepares_all_groups(config_)) transients_.clear();
        break;
      }
      if (swapped_weights_) {
        update_swapped_weights(unit);
        if (!prepares_all_groups(config_)) transients_.clear();
        break;
      }
      // Offload of stages 1 and 2: into the host's copy, which goes to the device behind it.
      const bool staged = offloads() && config_.stage < 3;
      device_.convert(unit.master,
                      config_.master_dtype,
                      staged ? held_[unit.staged].data() : unit.weights,
                      config_.model_dtype,
                      unit.elements);
      if (!prepares_all_groups(config_)) transients_.clear();
      break;
    }
    case ActionKind::copy_to_device: {
      const Unit& unit = units_[static_cast<std::size_t>(action.group)];
      const DType dtype = config_.model_dtype;
      if (config_.stage == 3) break;  // update_weights has written there
      device_.convert(held_[unit.staged].data(), dtype, unit.weights, dtype, unit.elements);
      break;
    }
    case ActionKind::swap_in:
    case ActionKind::swap_out:
      swap_states(action);
      break;
    case ActionKind::swap_out_weights:
      swapped_weights_->write();
      break;
    default:
      break;
  }
}

// Sums of squares of what the action names: everything (stage 0 in fp32), a group's cast gradient
// (stage 0), an owned slice (1, 2), a parameter's partition (3).
void RankEngine::take_norm(const EngineAction& action) {
  if (config_.stage == 0) {
    if (action.group >= 0) {
      const StepGradient& gradient = step_gradients_[static_cast<std::size_t>(action.group)];
      device_.add_squares_of(gradient.data, gradient.dtype, action.elements, Scalar::squares);
      return;
    }
    for_each_own_gradient([&](const std::byte* data, DType dtype, Elements elements) {
      device_.add_squares_of(data, dtype, elements, Scalar::group_squares);
    });
  } else if (config_.stage < 3) {
    for (std::size_t i = 0; i < owned_.size(); ++i) {
      if (owned_[i].parameter != action.parameter) continue;
      device_.add_squares_of(
          kept_slice(i, false), config_.model_dtype, owned_[i].numel, Scalar::group_squares);
    }
  } else {
    std::byte* flat = held_[find(BufferName::grad_partitions_flat_buffer, -1)].data();
    const DType dtype = config_.gradient_accumulation_dtype;
    const Elements offset = partition_offset_[static_cast<std::size_t>(action.parameter)];
    device_.add_squares_of(
        advance(flat, offset, dtype), dtype, part(action.parameter), Scalar::group_squares);
  }
}

void RankEngine::step_collective(const EngineAction& action) {
  if (action.collective.kind == CollectiveKind::all_gather) {
    if (config_.stage == 3) return;  // persistent weights: the coordinator's log has them too
    const auto gathers = static_cast<std::size_t>(next_gather_++);
    std::byte* flat = held_[find(BufferName::bit16_groups_flat, static_cast<int>(gathers))].data();
    const Elements share = partition_.groups[gathers].partition;
    groups_.all().run({.kind = CollectiveKind::all_gather,
                       .dtype = config_.model_dtype,
                       .elements = share,
                       .input = advance(flat, share * groups_.all().rank(), config_.model_dtype),
                       .output = flat});
    return;
  }
  if (action.collective.operation == ReduceOperation::maximum) return;  // overflowed() agreed
  // The sum of squares. In stage 0 every rank has all of it, and the ranks take the mean; shards of
  // MiCS have the same gradients.
  double squares = device_.take(Scalar::group_squares);
  groups_.partition().all_reduce(&squares, Elements::of(1));
  squares_ += config_.stage == 0 ? squares / groups_.all().ranks() : squares;
}

double RankEngine::gradient_norm() {
  squares_ += device_.take(Scalar::squares);
  return std::sqrt(squares_) / scaler_.scale();
}

// engine.py clip_fp32_gradients, stage_1_and_2.py unscale_and_clip_grads.
double RankEngine::gradient_factor() {
  const double clip = config_.gradient_clipping;
  const double norm = gradient_norm() + 1e-6;
  return (clip > 0.0 && norm > clip ? clip / norm : 1.0) / scaler_.scale();
}

// The gradient of a group, from where backward left it.
void RankEngine::fill_group(int group, std::byte* to, DType dtype) {
  const DType own = config_.model_dtype;
  if (config_.stage == 0) {
    for (const int p : partition_.groups[static_cast<std::size_t>(group)].parameters) {
      device_.convert(waiting_[static_cast<std::size_t>(p)].data(), own, to, dtype, numel(p));
      to = advance(to, numel(p), dtype);
    }
    return;
  }
  if (config_.stage == 3) {
    const Unit& unit = units_[static_cast<std::size_t>(group)];
    const std::byte* from = step_source(group).data;
    device_.convert(from, config_.gradient_accumulation_dtype, to, dtype, unit.elements);
    return;
  }
  Elements filled;
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    if (owned_[i].group != group) continue;
    device_.convert(kept_slice(i, false),
                    own,
                    advance(to, owned_[i].partition_offset, dtype),
                    dtype,
                    owned_[i].numel);
    filled = owned_[i].partition_offset + owned_[i].numel;
  }
  const Elements partition = partition_.groups[static_cast<std::size_t>(group)].partition;
  if (filled < partition) device_.zero(advance(to, filled, dtype), (partition - filled) * dtype);
}

// A group whose gradient is one piece is read where it is.
RankEngine::StepGradient RankEngine::step_source(int group) {
  if (config_.stage == 3) {
    const std::vector<SubGroup> groups = sub_groups(config_, parameters_);
    const int first = groups[static_cast<std::size_t>(group)].parameters.front();
    const DType dtype = config_.gradient_accumulation_dtype;
    std::byte* flat = held_[find(BufferName::grad_partitions_flat_buffer, -1)].data();
    return {advance(flat, partition_offset_[static_cast<std::size_t>(first)], dtype), dtype};
  }
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    if (owned_[i].group == group) return {kept_slice(i, false), config_.model_dtype};
  }
  // Nothing but padding: zeros of their own.
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const bool padding =
        buffers_[i].name == BufferName::averaged_gradients && buffers_[i].index == group;
    if (padding && held_[i]) return {held_[i].data(), config_.model_dtype};
  }
  ZP_CHECK(false, "a group has a gradient");
}

// DeepSpeed's flat copy of a group. Where a cast follows it takes its place alone, and the cast
// reads the gradients where they are.
void RankEngine::flatten_group(const EngineAction& action) {
  const auto group = static_cast<std::size_t>(action.group);
  step_gradients_.resize(std::max(step_gradients_.size(), group + 1));
  std::byte* flat = transients_.make(action.elements * action.dtype, MemoryCategory::temporaries);
  if (action.dtype != config_.master_dtype) return;
  fill_group(action.group, flat, action.dtype);
  step_gradients_[group] = {flat, action.dtype};
  // Stage 0 has cast each gradient of the group before: these go, the flat copies of groups stay.
  if (config_.stage == 0) transients_.drop_before_last(action.pieces);
}

// Of one gradient in stage 0, which may be all of its group; where it is not, the flat copy that
// follows is cast from the gradients, too, and only the place of this one is taken. Else of the
// group, whose flat copy goes when the cast is made.
void RankEngine::cast_group(const EngineAction& action) {
  const auto group = static_cast<std::size_t>(action.group);
  step_gradients_.resize(std::max(step_gradients_.size(), group + 1));
  StepGradient& gradient = step_gradients_[group];
  std::byte* to = transients_.make(action.elements * action.dtype, MemoryCategory::temporaries);
  if (action.parameter >= 0) {
    const bool alone = partition_.groups[group].parameters.size() == 1;
    const bool fused = optimizer_wrapper(config_) == OptimizerWrapper::fp16_fused;
    if (fused && !alone) return;
    const std::byte* from = waiting_[static_cast<std::size_t>(action.parameter)].data();
    device_.convert(from, config_.model_dtype, to, action.dtype, action.elements);
  } else {
    fill_group(action.group, to, action.dtype);
    transients_.keep_last();
  }
  gradient = {to, action.dtype};
}

void RankEngine::update_group(int group) {
  if (optimizer_wrapper(config_) == OptimizerWrapper::plain) {
    std::size_t next = 0;
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      if (parameters_[p].trainable) update_unit(units_[next++], waiting_[p].data());
    }
    return;
  }
  const auto g = static_cast<std::size_t>(group);
  if (units_[g].swapped) {
    update_swapped(group);
    return;
  }
  if (offloads() && config_.stage > 0) {
    update_unit(units_[g], held_[units_[g].gradient].data());
    return;
  }
  StepGradient gradient = g < step_gradients_.size() ? step_gradients_[g] : StepGradient{};
  if (gradient.data == nullptr) gradient = step_source(group);
  ZP_CHECK(gradient.dtype == config_.master_dtype, "the update reads gradients like the masters");
  update_unit(units_[g], gradient.data);
}

AdamWOptions RankEngine::options_of(const Unit& unit) const {
  AdamWOptions options = setup_.adamw;
  if (!unit.decays) options.weight_decay = 0.0;
  return options;
}

// In the update's own pass: the masters are not read again. Where all of it is on the device.
bool RankEngine::rounds_weights(const Unit& unit) const {
  return unit.weights != nullptr && !offloads() && !unit.swapped && !swapped_weights_ &&
         config_.offload_parameter.device == OffloadDevice::none;
}

void RankEngine::update_unit(const Unit& unit, const std::byte* gradient) {
  device_.adamw({.weights = unit.master,
                 .first_moment = held_[unit.first_moment].data(),
                 .second_moment = held_[unit.second_moment].data(),
                 .gradient = gradient,
                 .elements = unit.elements,
                 .dtype = config_.master_dtype,
                 .rounded = rounds_weights(unit) ? unit.weights : nullptr,
                 .rounded_dtype = config_.model_dtype},
                options_of(unit),
                updates_,
                gradient_factor());
}

}  // namespace zeroplan::runtime
