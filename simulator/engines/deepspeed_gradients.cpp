// From a finished gradient to the engine's buckets. Sources: gradient_buckets.hpp.
#include <algorithm>

#include "simulator/engines/deepspeed_writer.hpp"

namespace zeroplan {

// stage3.py create_reduce_and_remove_grad_hooks: a leaf module's backward hook reduces them all, in
// the order of its parameters.
void DeepSpeedWriter::take_gradients_of_leaf() {
  std::vector<HeldGradient> gradients = std::move(of_leaf_);
  of_leaf_.clear();
  std::sort(gradients.begin(), gradients.end(), [](const HeldGradient& a, const HeldGradient& b) {
    return a.parameter < b.parameter;
  });
  for (const HeldGradient& gradient : gradients) {
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
    held_.push_back({action.parameter, slot});
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
  // Without a bucket's buffer what the rank owns stays where autograd made it.
  if (!reducer_.contiguous()) release_held();
  make_owned_storage();
  release_held();
  release_transients();
  end_backward_buffers(micro_step);
}

void DeepSpeedWriter::release_waiting_gradients() {
  for (std::size_t p = 0; p < waits_.size(); ++p) {
    if (waits_[p]) writer_.release(waiting_slots_[p]);
    waits_[p] = false;
  }
}

// --- gradients outside the bucket's buffer

void DeepSpeedWriter::note_flushed(std::span<const int> members) {
  for (HeldGradient& gradient : held_) {
    if (std::find(members.begin(), members.end(), gradient.parameter) != members.end()) {
      gradient.is_flushed = true;
    }
  }
}

// The bucket's list lets go of them at the end of the flush (stage_1_and_2.py reduce_ipg_grads),
// and stage 2 of param.grad. Stage 1 clears that once the backward pass is over (zero_grad), and
// without a bucket's buffer what the rank owns stays for the step.
void DeepSpeedWriter::release_flushed() {
  const bool until_the_end = config_.stage == 1 && !config_.embedded;
  std::vector<HeldGradient> kept;
  for (const HeldGradient& gradient : held_) {
    const bool own = !reducer_.contiguous() && reducer_.owns(gradient.parameter);
    if (gradient.is_flushed && !until_the_end && !own) {
      release_gradient(gradient.slot);
    } else {
      kept.push_back(gradient);
    }
  }
  held_ = std::move(kept);
}

// copy_grads_in_partition: the gradient's data is now the copy's.
void DeepSpeedWriter::drop_kept(std::int32_t parameter) {
  if (config_.embedded || config_.offload_optimizer.device != OffloadDevice::none) return;
  const auto found = std::find_if(held_.begin(), held_.end(), [&](const HeldGradient& gradient) {
    return gradient.parameter == parameter && gradient.is_flushed;
  });
  if (found == held_.end()) return;
  release_gradient(found->slot);
  held_.erase(found);
}

void DeepSpeedWriter::release_held() {
  for (const HeldGradient& gradient : held_) release_gradient(gradient.slot);
  held_.clear();
}

void DeepSpeedWriter::release_gradient(SlotIndex slot) {
  if (reduce_ != kComputeStream) writer_.use_on_stream(slot, reduce_);
  writer_.release(slot);
}

}  // namespace zeroplan
