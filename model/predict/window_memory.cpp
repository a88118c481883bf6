#include "model/predict/window_memory.hpp"

#include <algorithm>

#include "model/engine/gradient_buckets.hpp"
#include "model/engine/partition.hpp"
#include "model/engine/transients.hpp"
#include "model/predict/window_moment.hpp"
#include "model/step/kept_weights.hpp"
#include "model/step/kernel_workspaces.hpp"
#include "model/step/outside_passes.hpp"

namespace zeroplan {
namespace {

// The engine's buffers at a moment: those that are there, those that grow with the backward pass,
// and those that its flushes make.
struct EngineBytes {
  CategoryBytes fixed{};
  CategoryBytes growing{};
  CategoryBytes owned{};
};

class Walk {
 public:
  Walk(const Plan& plan,
       const StepWork& work,
       const EngineConfig& config,
       const std::vector<EngineBuffer>& buffers)
      : plan_(plan),
        work_(work),
        config_(config),
        buffers_(buffers),
        timeline_(work.activations),
        workspaces_(kept_workspaces(plan, work.graph)),
        outputs_before_(plan.workload.outputs_kept ? bytes_of_outputs(work.graph) : Bytes::zero()),
        reducer_(config, plan.engine_parameters) {
    kept_ = kept_weights(plan, config);
    reentrant_ = checkpoints_reentrantly(plan);
    in_flight_ = activations_in_flight();
  }

  WindowMemory run() {
    const int last = config_.gradient_accumulation_steps - 1;
    // The first and the last micro-step differ from each other and from none in between.
    walk(0, last);
    if (last > 0) walk(last, last);
    memory_.step = beside_outputs(engine({Phase::step, last == 0, true}, true)).fixed;
    memory_.between_steps =
        sum(beside_outputs(engine({Phase::forward, true, last == 0}, true)).fixed);
    return memory_;
  }

 private:
  // A pipeline stage runs the forward passes of several micro-batches before it runs a backward
  // pass: what all but the one at work have saved.
  CategoryBytes activations_in_flight() const {
    CategoryBytes bytes{};
    const std::int64_t others = live_micro_batches(plan_) - 1;
    if (others <= 0) return bytes;
    const auto turn = std::find_if(
        timeline_.steps.begin(), timeline_.steps.end(), [](const ActivationStep& step) {
          return !in_forward_phase(step.pass.pass) && step.pass.pass != Pass::drop_outputs;
        });
    if (turn == timeline_.steps.end()) return bytes;
    bytes = turn->entry;
    at(bytes, MemoryCategory::activations) += work_.graph.batch;
    for (Bytes& part : bytes) part = part * others;
    return bytes;
  }

  EngineBytes engine(const WindowMoment& moment, bool with_persistent) const {
    EngineBytes bytes;
    for (const EngineBuffer& buffer : buffers_) {
      if (buffer.place != BufferPlace::gpu || !alive(buffer.lifetime, moment)) continue;
      // The fetch coordinator counts persistent weights among the live ones.
      if (!with_persistent && buffer.name == BufferName::persistent_parameters) continue;
      if (is_unbuffered_gradient(buffer, config_)) continue;
      if (buffer.made_by_flush && moment.phase == Phase::backward) {
        bytes.owned[static_cast<std::size_t>(buffer.category)] += buffer.bytes;
        continue;
      }
      // Kept gradients (is_kept_gradient) are counted all along, though backward() drops them
      // first.
      const bool grows =
          moment.phase == Phase::backward && moment.first && is_waiting_gradient(buffer);
      at(grows ? bytes.growing : bytes.fixed, buffer.category) += buffer.bytes;
    }
    at(bytes.fixed, MemoryCategory::parameters) += work_.graph.buffers;
    at(bytes.fixed, MemoryCategory::logits) += work_.graph.kept_outputs;
    at(bytes.fixed, MemoryCategory::temporaries) += workspaces_;
    return bytes;
  }

  // Where the loop still has the outputs of the micro-batch before.
  EngineBytes beside_outputs(EngineBytes bytes) const {
    at(bytes.fixed, MemoryCategory::logits) += outputs_before_;
    return bytes;
  }

  // `bytes` of a forward pass, with the buckets that are made before autograd runs.
  EngineBytes with_early_buckets(EngineBytes bytes, const WindowMoment& forward) const {
    if (!makes_buckets_before_backward(config_)) return bytes;
    for (const EngineBuffer& buffer : buffers_) {
      if (!is_reduce_bucket(buffer) || alive(buffer.lifetime, forward)) continue;
      at(bytes.fixed, buffer.category) += buffer.bytes;
    }
    return bytes;
  }

  void walk(int micro_step, int last) {
    const bool counted_live = !work_.gathers.peaks.empty();
    const WindowMoment moment{Phase::forward, micro_step == 0, micro_step == last};
    forward_ = engine(moment, !counted_live);
    backward_ = engine({Phase::backward, moment.first, moment.boundary}, !counted_live);
    before_hooks_ = with_early_buckets(forward_, moment);
    forward_ = beside_outputs(forward_);
    taken_at_once_ = reducer_.reduces_in_hooks(micro_step) || micro_step > 0;
    next_gradient_ = 0;
    owns_ = false;
    done_ = held_ = saved_weights_ = consumed_ = Bytes::zero();
    reducer_.begin_backward(micro_step);
    for (std::size_t i = 0; i < timeline_.steps.size(); ++i) {
      const ActivationStep& step = timeline_.steps[i];
      if (step.pass.pass == Pass::drop_outputs) continue;
      follow_kept_weights(step);
      if (in_forward_phase(step.pass.pass)) {
        keep_larger(memory_.forward, at_rise(i, step.before_gradients, forward_, Bytes::zero()));
      } else {
        backward_pass(i, step);
      }
    }
    end_backward();
  }

  // Engine, activations and gathered weights at the peak of a stretch of a pass.
  CategoryBytes at_rise(std::size_t i,
                        const PassRise& rise,
                        const EngineBytes& engine,
                        Bytes gradients) const {
    CategoryBytes bytes = engine.fixed;
    add(bytes, timeline_.steps[i].entry);
    add(bytes, rise.without);
    add(bytes, in_flight_);
    at(bytes, MemoryCategory::activations) += work_.graph.batch;
    at(bytes, MemoryCategory::gradients) += gradients;
    add_live(i, bytes);
    return bytes;
  }

  void backward_pass(std::size_t i, const ActivationStep& step) {
    // The engine's hooks make buckets and owned gradients when the first gradient is complete.
    const bool hooks_have_run = done_ > Bytes::zero();
    const PassRise& before = step.before_gradients;
    keep_larger(memory_.backward,
                with_waiting(
                    at_rise(i, before, hooks_have_run ? backward_ : before_hooks_, fresh(before))));
    if (step.weight_gradient_count == 0) return;
    const PassRise& after = step.from_first_gradient;
    CategoryBytes bytes = with_waiting(at_rise(i, after, backward_, fresh(after)));
    const bool owned = owns_;
    CategoryBytes flushing = bytes;
    at(flushing, MemoryCategory::communication_buffers) += reduce(step);
    keep_larger(memory_.backward, flushing);
    // What the rank keeps is made when the flush's own copies are gone.
    if (owns_ && !owned) add(bytes, backward_.owned);
    keep_larger(memory_.backward, bytes);
    done_ += step.weight_gradients;
  }

  // Weight gradients of a pass that have not left autograd, or stay in .grad.
  Bytes fresh(const PassRise& rise) const {
    return std::max(Bytes::zero(), (taken_at_once_ ? rise.dropping : rise.keeping) - rise.total);
  }

  // Gradients of earlier passes that wait for the boundary or for the next flush.
  CategoryBytes with_waiting(CategoryBytes bytes) const {
    const double progress =
        timeline_.weight_gradients == Bytes::zero() ? 0.0 : done_ / timeline_.weight_gradients;
    for (std::size_t c = 0; c < bytes.size(); ++c) {
      bytes[c] += Bytes::nearest(static_cast<double>(backward_.growing[c].count()) * progress);
    }
    at(bytes, MemoryCategory::gradients) += held_;
    if (owns_) add(bytes, backward_.owned);
    return bytes;
  }

  // Hands a pass's gradients to the reducer; the copies that its flushes make.
  Bytes reduce(const ActivationStep& step) {
    Bytes copies;
    for (std::int32_t k = 0; k < step.weight_gradient_count; ++k) {
      const std::int32_t parameter = timeline_.gradient_order[next_gradient_++];
      actions_.clear();
      reducer_.gradient_ready(parameter, actions_);
      owns_ = owns_ ||
              std::any_of(
                  actions_.actions.begin(), actions_.actions.end(), [](const EngineAction& action) {
                    return action.kind == ActionKind::keep_owned;
                  });
      copies = std::max(copies, flush_copies());
      held_ = kept_outside();
    }
    return copies;
  }

  // Whatever follows a gradient that is larger than the bucket flushes it.
  Bytes kept_outside() const {
    Bytes bytes;
    for (const EngineAction& action : actions_.actions) {
      if (action.kind == ActionKind::keep_outside) bytes = action.elements * action.dtype;
    }
    return bytes;
  }

  Bytes flush_copies() {
    const Bytes copies = reduction_peak(config_, actions_);
    memory_.largest_flush = std::max(memory_.largest_flush, copies);
    return copies;
  }

  // The last bucket, or everything where gradients waited.
  void end_backward() {
    actions_.clear();
    reducer_.end_backward(actions_);
    owns_ = true;
    CategoryBytes bytes = backward_.fixed;
    add(bytes, timeline_.after);
    bytes = with_waiting(bytes);
    keep_larger(memory_.backward, bytes);  // before the first copy into the bucket
    at(bytes, MemoryCategory::gradients) -=
        reducer_.moved_into_bucket(at(backward_.growing, MemoryCategory::gradients));
    at(bytes, MemoryCategory::communication_buffers) += flush_copies();
    keep_larger(memory_.backward, bytes);
    const Bytes updates = orthogonalization_peak(config_, actions_);
    if (updates == Bytes::zero()) return;
    bytes = backward_.fixed;
    add(bytes, timeline_.after);
    add(bytes, backward_.owned);
    at(bytes, MemoryCategory::gradients) += updates;
    keep_larger(memory_.backward, bytes);
  }

  void add_live(std::size_t step, CategoryBytes& bytes) const {
    if (work_.gathers.peaks.empty()) return;
    const LiveElements& live = work_.gathers.peaks[step];
    // A weight that is gathered again beside a kept view is a second storage; only those kept
    // across the turn to backward are the same (at most max_reuse_distance / 2, counted twice).
    at(bytes, MemoryCategory::parameters) += live.parameters * config_.model_dtype + saved_weights_;
    at(bytes, MemoryCategory::communication_buffers) +=
        std::max(Elements::zero(), live.buffers - live.parameters) * config_.model_dtype;
  }

  // Gathered weights that outlive their release by the engine.
  void follow_kept_weights(const ActivationStep& step) {
    if (kept_.empty()) return;
    saved_weights_ -= consumed_;  // by the pass before
    consumed_ = Bytes::zero();
    const Pass pass = step.pass.pass;
    const auto& instance = work_.graph.instances[static_cast<std::size_t>(step.pass.instance)];
    for (const std::int32_t parameter : instance.parameters) {
      const KeptWeight kept = kept_[static_cast<std::size_t>(parameter)];
      const Bytes weight =
          plan_.engine_parameters[static_cast<std::size_t>(parameter)].numel * config_.model_dtype;
      const bool with_graph = kept == KeptWeight::by_graph && !reentrant_;
      if (kept == KeptWeight::by_nothing || kept == KeptWeight::by_recomputation) continue;
      if (with_graph ? in_forward_phase(pass) : keeps_weight(kept, pass, reentrant_)) {
        saved_weights_ += weight;
      } else if (pass == Pass::backward && !with_graph) {
        consumed_ += weight;
      }
    }
  }

  const Plan& plan_;
  const StepWork& work_;
  const EngineConfig& config_;
  const std::vector<EngineBuffer>& buffers_;
  const ActivationTimeline& timeline_;
  Bytes workspaces_;
  Bytes outputs_before_;  // that the loop keeps of the micro-batch before
  GradientReducer reducer_;
  WindowMemory memory_;
  EngineActions actions_;
  std::vector<KeptWeight> kept_;  // by parameter; empty: of none
  bool reentrant_ = false;

  CategoryBytes in_flight_{};

  // Of the micro-step being walked.
  EngineBytes forward_;
  EngineBytes backward_;
  EngineBytes before_hooks_;  // of the backward pass
  bool taken_at_once_ = false;
  std::size_t next_gradient_ = 0;
  bool owns_ = false;    // a flush has made what the rank keeps of the gradients
  Bytes done_;           // weight gradients complete so far
  Bytes held_;           // the one larger than a bucket that waits for the next flush
  Bytes saved_weights_;  // gathered weights that autograd saved
  Bytes consumed_;       // those of them whose backward pass runs
};

}  // namespace

WindowMemory window_memory(const Plan& plan,
                           const StepWork& work,
                           const EngineConfig& config,
                           const std::vector<EngineBuffer>& buffers) {
  return Walk(plan, work, config, buffers).run();
}

}  // namespace zeroplan
