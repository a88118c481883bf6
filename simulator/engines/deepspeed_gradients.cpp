// From a finished gradient to the engine's buckets. Sources: gradient_buckets.hpp.
#include <algorithm>

#include "simulator/engines/deepspeed_writer.hpp"

namespace zeroplan {

// stage3.py create_reduce_and_remove_grad_hooks: a leaf module's backward hook reduces them all, in
// the order of its parameters.
void DeepSpeedWriter::take_gradients_of_leaf() {
  std::vector<LeafGradient> gradients = std::move(of_leaf_);
  of_leaf_.clear();
  std::sort(gradients.begin(), gradients.end(), [](const LeafGradient& a, const LeafGradient& b) {
    return a.parameter < b.parameter;
  });
  for (const LeafGradient& gradient : gradients) {
    reduce_gradient(gradient.parameter, gradient.slot);
  }
}

void DeepSpeedWriter::take_gradient(std::int32_t parameter, SlotIndex slot) {
  if (fetches_) fetches_->release_saved_weight(parameter);  // its node has run
  const bool waits = !leaf_of_.empty() && leaf_of_[static_cast<std::size_t>(parameter)] >= 0;
  if (!waits) {
    reduce_gradient(parameter, slot);
    return;
  }
  of_leaf_.push_back({parameter, slot});
}

void DeepSpeedWriter::reduce_gradient(std::int32_t parameter, SlotIndex slot) {
  begin_backward_buffers(micro_step_);
  actions_.clear();
  reducer_.gradient_ready(parameter, actions_);
  at_hand_ = slot;
  write_actions(actions_);
}

// The Python of a gradient, in autograd's hook or in a loop after the pass.
void DeepSpeedWriter::write_gradient_hook() {
  writer_.issue(tasks_.host("gradient hook", tasks_.host_costs().gradient_hook), kComputeStream);
}

void DeepSpeedWriter::accumulate_gradient(const EngineAction& action) {
  const auto p = static_cast<std::size_t>(action.parameter);
  const bool waited = waits_[p];
  waits_[p] = true;
  if (!waited && action.dtype == config_.model_dtype) {
    writer_.move(at_hand_, waiting_slots_[p]);
    return;
  }
  if (!waited) {
    writer_.allocate(waiting_slots_[p],
                     action.elements * action.dtype,
                     MemoryCategory::gradients,
                     kComputeStream);
  }
  issue(action);
  writer_.release(at_hand_);
}

// What waited, or what autograd has just made.
void DeepSpeedWriter::join_bucket(const EngineAction& action) {
  issue(action);
  if (action.keeps_source) return;
  const auto p = static_cast<std::size_t>(action.parameter);
  const SlotIndex slot = waits_[p] ? waiting_slots_[p] : at_hand_;
  waits_[p] = false;
  if (action.kind != ActionKind::insert_gradient) {
    outside_slots_[p] = slot;
    return;
  }
  const StreamId stream = stream_of(action.stream);
  if (stream != kComputeStream) writer_.use_on_stream(slot, stream);
  writer_.release(slot);
}

void DeepSpeedWriter::finish_backward(int micro_step) {
  writer_.set_label(-1);
  begin_backward_buffers(micro_step);
  actions_.clear();
  reducer_.end_backward(actions_);
  write_actions(actions_);
  make_owned_storage();  // also where nothing was reduced
  release_transients();
  end_backward_buffers(micro_step);
}

void DeepSpeedWriter::release_waiting_gradients() {
  for (std::size_t p = 0; p < waits_.size(); ++p) {
    if (waits_[p]) writer_.release(waiting_slots_[p]);
    waits_[p] = false;
  }
}

void DeepSpeedWriter::drop_gradients(std::span<const int> parameters) {
  for (const int parameter : parameters) {
    const SlotIndex slot = outside_slots_[static_cast<std::size_t>(parameter)];
    if (reduce_ != kComputeStream) writer_.use_on_stream(slot, reduce_);
    writer_.release(slot);
  }
}

}  // namespace zeroplan
