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
  if (!in_hooks_) {
    keep_waiting_gradient(parameter, slot);
    return;
  }
  write_gradient_hook();
  write_actions(actions_);
  const auto p = static_cast<std::size_t>(parameter);
  if (waits_[p]) {  // stage 1 with overlap: what earlier micro-steps left is reduced with it
    keep_waiting_gradient(parameter, slot);
    waits_[p] = false;
    slot = waiting_slots_[p];
  }
  copy_into_bucket(parameter, slot);
}

// After the last backward, in the order of the parameter groups (stage 1 without overlap). Sums of
// another dtype stay to the end of the window.
void DeepSpeedWriter::take_waiting_gradient(std::int32_t parameter) {
  const auto p = static_cast<std::size_t>(parameter);
  if (in_hooks_ || !waits_[p]) return;
  write_gradient_hook();
  if (separate_accumulation()) {
    const Elements numel = plan_.engine_parameters[p].numel;
    writer_.issue(
        tasks_.kernel("cast gradient",
                      numel * config_.gradient_accumulation_dtype + numel * config_.model_dtype * 3,
                      2),
        kComputeStream);
    return;
  }
  pending_ = parameter;
}

// The Python of a gradient, in autograd's hook or in a loop after the pass.
void DeepSpeedWriter::write_gradient_hook() {
  if (config_.stage == 0) return;
  writer_.issue(tasks_.host("gradient hook", tasks_.host_costs().gradient_hook), kComputeStream);
}

// A gradient that waited joins the bucket behind the flush that it causes (stage_1_and_2.py
// reduce_independent_p_g_buckets_and_remove_grads). In the embedded runtime
// (runtime/engine/rank_gradients.cpp) one outside the bucket's buffer lives until what it gives is
// kept.
void DeepSpeedWriter::follow_pending(const EngineActions& actions, const EngineAction& action) {
  const bool flush = action.kind == ActionKind::flush;
  if (!flush && action.kind != ActionKind::gradient_ready) return;
  if (config_.embedded && config_.stage < 3) release_flushed();
  const std::span<const int> members = actions.members_of(action);
  const bool its_own = std::find(members.begin(), members.end(), pending_) != members.end();
  if (!flush || its_own) insert_pending();
}

void DeepSpeedWriter::insert_pending() {
  if (pending_ < 0) return;
  const auto p = static_cast<std::size_t>(pending_);
  waits_[p] = false;
  copy_into_bucket(pending_, waiting_slots_[p]);
  pending_ = -1;
}

bool DeepSpeedWriter::separate_accumulation() const {
  return optimizer_wrapper(config_) == OptimizerWrapper::zero12 &&
         config_.gradient_accumulation_dtype != config_.model_dtype;
}

// Into the bucket's buffer, or aside where the gradient is larger than that. Stages 1 and 2 copy on
// the compute stream (stage_1_and_2.py reduce_independent_p_g_buckets_and_remove_grads), stage 3 on
// the reduce stream (stage3.py __add_grad_to_ipg_bucket).
void DeepSpeedWriter::copy_into_bucket(std::int32_t parameter, SlotIndex slot) {
  const Elements numel = plan_.engine_parameters[static_cast<std::size_t>(parameter)].numel;
  if (!reducer_.contiguous() || numel > config_.reduce_bucket) {
    held_.push_back({parameter, slot});
    return;
  }
  const StreamId stream = config_.stage == 3 ? reduce_ : kComputeStream;
  const DType bucket = config_.stage == 3 ? config_.communication_dtype : config_.model_dtype;
  writer_.issue(tasks_.kernel("copy gradient", numel * config_.model_dtype + numel * bucket),
                stream);
  if (stream != kComputeStream) writer_.use_on_stream(slot, stream);
  writer_.release(slot);
}

// Until the boundary: the first micro-step's gradient stays where autograd made it, later ones are
// added to it. Stage 1 with another accumulation dtype keeps a sum of its own.
void DeepSpeedWriter::keep_waiting_gradient(std::int32_t parameter, SlotIndex slot) {
  const auto p = static_cast<std::size_t>(parameter);
  const Elements numel = plan_.engine_parameters[p].numel;
  const DType own = config_.model_dtype;
  const DType sum = config_.gradient_accumulation_dtype;
  const bool separate = separate_accumulation();
  if (!waits_[p] && !separate) {
    waits_[p] = true;
    writer_.move(slot, waiting_slots_[p]);
    return;
  }
  if (!waits_[p]) {
    waits_[p] = true;
    writer_.allocate(waiting_slots_[p], numel * sum, MemoryCategory::gradients, kComputeStream);
    writer_.issue(tasks_.kernel("cast gradient", numel * own + numel * sum), kComputeStream);
  } else {
    const DType kept = separate ? sum : own;
    writer_.issue(tasks_.kernel("add gradient", numel * own + numel * kept * 2), kComputeStream);
  }
  writer_.release(slot);
}

void DeepSpeedWriter::finish_backward(int micro_step) {
  writer_.set_label(-1);
  begin_backward_buffers(micro_step);
  const bool bf16 = optimizer_wrapper(config_) == OptimizerWrapper::bf16_optimizer;
  if (bf16) {
    // bf16_optimizer.py update_hp_grads: hp += lp.to(fp32), one parameter after the other.
    for (std::size_t p = 0; p < waits_.size(); ++p) {
      if (!waits_[p]) continue;
      const Elements numel = plan_.engine_parameters[p].numel;
      transient(numel * config_.gradient_accumulation_dtype,
                MemoryCategory::temporaries,
                kComputeStream,
                tasks_.kernel(
                    "accumulate gradient",
                    numel * config_.model_dtype + numel * config_.gradient_accumulation_dtype * 4,
                    2));
      release_transients();
    }
  }
  actions_.clear();
  reducer_.end_backward(actions_);
  write_actions(actions_);
  // Without a bucket's buffer what the rank owns stays where autograd made it.
  if (!reducer_.contiguous()) release_held();
  make_owned_storage();
  release_held();
  release_transients();
  end_backward_buffers(micro_step);
  const bool boundary = micro_step == config_.gradient_accumulation_steps - 1;
  if (boundary && separate_accumulation()) release_waiting_gradients();
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
