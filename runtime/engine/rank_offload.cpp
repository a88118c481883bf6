// Offload: gradients go to the host's fp32 gradient. Sources: gradient_buckets.hpp.
#include "base/check.hpp"
#include "runtime/engine/rank_engine.hpp"
#include "runtime/engine/tensor_ops.hpp"

namespace zeroplan::runtime {

// Stage 2 with accumulation: the sum of a whole parameter on the host; null where there is none.
std::byte* RankEngine::accumulator(std::int32_t parameter) {
  int index = 0;
  for (const FlatGroup& group : partition_.groups) {
    for (const int p : group.declared) {
      if (p != parameter) {
        ++index;
        continue;
      }
      for (std::size_t i = 0; i < buffers_.size(); ++i) {
        const bool its =
            buffers_[i].name == BufferName::accumulated_grads_in_cpu && buffers_[i].index == index;
        if (its) return held_[i].data();
      }
      return nullptr;
    }
  }
  return nullptr;
}

// What an action of a parameter is about: its owned slice (stages 1, 2) or its partition (3).
RankEngine::StepGradient RankEngine::offloaded_gradient(const EngineAction& action) {
  if (config_.stage == 3) {
    std::byte* flat = held_[find(BufferName::grad_partitions_flat_buffer, -1)].data();
    const DType dtype = config_.gradient_accumulation_dtype;
    const auto p = static_cast<std::size_t>(action.parameter);
    return {advance(flat, partition_offset_[p], dtype), dtype};
  }
  const DType dtype = config_.model_dtype;
  std::byte* whole = accumulator(action.parameter);
  if (whole == nullptr) whole = bucket_.piece_of(action.parameter).data;
  for (const OwnedSlice& slice : owned_) {
    if (slice.parameter == action.parameter) return {advance(whole, slice.start, dtype), dtype};
  }
  ZP_CHECK(false, "an offloaded gradient is owned");
}

void RankEngine::offload(const EngineAction& action) {
  switch (action.kind) {
    case ActionKind::accumulate_on_host: {
      const GradientBucket::Piece& piece = bucket_.piece_of(action.parameter);
      std::byte* sum = accumulator(action.parameter);
      const DType dtype = config_.model_dtype;
      if (action.pieces == 0) {
        device_.convert(piece.data, dtype, sum, dtype, piece.elements);
      } else {
        device_.add_to(sum, dtype, piece.data, dtype, piece.elements);
      }
      break;
    }
    case ActionKind::norm: {
      const StepGradient gradient = offloaded_gradient(action);
      device_.add_squares_of(gradient.data, gradient.dtype, action.elements, Scalar::group_squares);
      break;
    }
    case ActionKind::gradient_to_master: {
      // Cast where the gradient is, on the device, then copied.
      const StepGradient gradient = offloaded_gradient(action);
      std::byte* cast =
          transients_.make(action.elements * action.dtype, MemoryCategory::temporaries);
      device_.convert(gradient.data, gradient.dtype, cast, action.dtype, action.elements);
      for (std::size_t i = 0; i < units_.size(); ++i) {
        const Unit& unit = units_[i];
        for (const Unit::Part& part : unit.parts) {
          if (part.parameter != action.parameter) continue;
          if (unit.swapped) {
            const auto group = static_cast<int>(i);
            states_->put_gradient(
                group, action.parameter, cast, part.elements, unswapped_gradients());
            continue;
          }
          std::byte* to = advance(held_[unit.gradient].data(), part.offset, DType::fp32);
          const OnQueue queue(device_, Queue::copy);
          device_.convert(cast, action.dtype, to, DType::fp32, part.elements);
        }
      }
      break;
    }
    case ActionKind::swap_out:
      states_->send_gradients();
      break;
    case ActionKind::copy_to_host:
      transients_.clear();
      break;
    default:
      break;
  }
}

}  // namespace zeroplan::runtime
