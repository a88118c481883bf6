#include "model/graph/activation_timeline.hpp"

#include <algorithm>
#include <utility>

namespace zeroplan {
namespace {

// What a pass over a block leaves behind, and how high it rises, above its entry.
struct PassEffect {
  CategoryBytes left{};  // change of what is alive, complete weight gradients not counted
  PassRise before_gradients;
  PassRise from_first_gradient;
  Bytes weight_gradients;
  std::int32_t weight_gradient_count = 0;
  std::optional<LossMoment> loss;  // above the entry, too
  bool known = false;
};

// Plays a pass and follows its bytes.
class EffectSink {
 public:
  EffectSink(const Block& block, Pass pass)
      : block_(block),
        pass_(pass),
        weight_(block.storages.size(), false),
        made_here_(block.storages.size(), false),
        rise_(&effect_.before_gradients) {
    for (const WeightGradient& gradient : block.weight_gradients) {
      if (gradient.storage >= 0) weight_[static_cast<std::size_t>(gradient.storage)] = true;
    }
  }
  void module_enter(int) {}
  void module_exit(int) {}
  void operation(const Operation&) {}
  void saved(int) {}
  void allocate(int index, const Storage& storage) {
    const auto at = static_cast<std::size_t>(index);
    // A fused loss makes its weight's gradient in forward: a tensor it saves, until backward.
    if (weight_[at] && pass_ == Pass::backward) {
      made_here_[at] = true;
      open_weight_ += allocated_bytes(storage);
      all_weights_ += allocated_bytes(storage);
    } else {
      add(storage.category, allocated_bytes(storage));
    }
    note_peak();
  }
  void release(int, const Storage& storage) {
    add(storage.category, Bytes::zero() - allocated_bytes(storage));
  }
  void weight_gradient(const WeightGradient& gradient) {
    Bytes bytes;
    if (gradient.storage >= 0) {
      bytes = allocated_bytes(block_.storages[static_cast<std::size_t>(gradient.storage)]);
    }
    const bool made_here =
        gradient.storage >= 0 && made_here_[static_cast<std::size_t>(gradient.storage)];
    if (made_here) open_weight_ -= bytes;
    if (!gradient.complete && !made_here) return;  // it goes on being counted as saved
    if (!made_here) {
      add(MemoryCategory::gradients, Bytes::zero() - bytes);
      all_weights_ += bytes;
    }
    if (!gradient.complete) {
      // Autograd's input buffer keeps it; it is not the engine's yet.
      all_weights_ -= bytes;
      add(MemoryCategory::gradients, bytes);
      return;
    }
    ++effect_.weight_gradient_count;
    rise_ = &effect_.from_first_gradient;
    note_peak();
  }

  void passes_beside() { effect_.loss = LossMoment{effect_.left, effect_.left}; }

  PassEffect take() {
    effect_.weight_gradients = all_weights_;
    effect_.known = true;
    return effect_;
  }

 private:
  void add(MemoryCategory category, Bytes bytes) {
    effect_.left[static_cast<std::size_t>(category)] += bytes;
    alive_ += bytes;
  }
  void note_peak() {
    if (effect_.loss && alive_ > sum(effect_.loss->peak)) effect_.loss->peak = effect_.left;
    if (alive_ > rise_->total) {
      rise_->total = alive_;
      rise_->without = effect_.left;
    }
    rise_->dropping = std::max(rise_->dropping, alive_ + open_weight_);
    rise_->keeping = std::max(rise_->keeping, alive_ + all_weights_);
  }

  const Block& block_;
  const Pass pass_;
  std::vector<bool> weight_;
  std::vector<bool> made_here_;
  PassEffect effect_;
  PassRise* rise_;
  Bytes alive_;
  Bytes open_weight_;
  Bytes all_weights_;
};

CategoryBytes plus(const CategoryBytes& a, const CategoryBytes& b) {
  CategoryBytes sum{};
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = a[i] + b[i];
  return sum;
}

// What a pass releases that no event of its block says, and what its events say that it keeps.
void end_pass(const ModelGraph& graph, const PassStep& pass, CategoryBytes& alive) {
  for (const HeldInput& held : graph.held_inputs) {
    if (!held.keeps(pass)) continue;
    const Storage& storage = graph.storage(graph.storage_of(held));
    at(alive, storage.category) += allocated_bytes(storage);
  }
  graph.free_behind(pass, [&](StorageId id) {
    const Storage& storage = graph.storage(id);
    at(alive, storage.category) -= allocated_bytes(storage);
  });
}

// A tied weight's first part waits in autograd until the last is added; then the engine gets the
// whole.
class TiedGradients {
 public:
  explicit TiedGradients(ActivationTimeline& timeline) : timeline_(timeline) {}

  void read(const Block& block, const BlockInstance& instance, CategoryBytes& alive) {
    for (const Event& event : block.of(Pass::backward)) {
      if (event.kind != EventKind::weight_gradient) continue;
      const WeightGradient& gradient =
          block.weight_gradients[static_cast<std::size_t>(event.index)];
      const std::int32_t parameter =
          instance.parameters[static_cast<std::size_t>(gradient.parameter)];
      if (gradient.complete) {
        hand_over(parameter, alive);
      } else if (gradient.storage >= 0) {
        waiting_.emplace_back(
            parameter, allocated_bytes(block.storages[static_cast<std::size_t>(gradient.storage)]));
      }
    }
  }

 private:
  void hand_over(std::int32_t parameter, CategoryBytes& alive) {
    for (auto& [waits, bytes] : waiting_) {
      if (waits != parameter) continue;
      at(alive, MemoryCategory::gradients) -= bytes;
      timeline_.steps.back().weight_gradients += bytes;
      bytes = Bytes::zero();
    }
  }

  ActivationTimeline& timeline_;
  std::vector<std::pair<std::int32_t, Bytes>> waiting_;
};

}  // namespace

ActivationTimeline activation_timeline(const ModelGraph& graph) {
  std::vector<PassEffect> effects(graph.blocks.size() * kPassCount);
  ActivationTimeline timeline;
  timeline.gradient_order = gradient_order(graph);
  TiedGradients tied(timeline);
  CategoryBytes alive{};
  for (const PassStep& pass : micro_batch(graph)) {
    const BlockInstance& instance = graph.instances[static_cast<std::size_t>(pass.instance)];
    const Block& block = graph.block_of(instance);
    PassEffect& effect = effects[static_cast<std::size_t>(instance.block) * kPassCount +
                                 static_cast<std::size_t>(pass.pass)];
    if (!effect.known) {
      EffectSink sink(block, pass.pass);
      play(block, pass.pass, sink);
      effect = sink.take();
    }
    ActivationStep step;
    step.pass = pass;
    step.entry = alive;
    step.before_gradients = effect.before_gradients;
    step.from_first_gradient = effect.from_first_gradient;
    step.weight_gradients = effect.weight_gradients;
    step.weight_gradient_count = effect.weight_gradient_count;
    timeline.steps.push_back(step);
    if (effect.loss) {
      timeline.loss = LossMoment{plus(alive, effect.loss->before), plus(alive, effect.loss->peak)};
    }
    alive = plus(alive, effect.left);
    end_pass(graph, pass, alive);
    if (pass.pass == Pass::backward) tied.read(block, instance, alive);
    timeline.weight_gradients += timeline.steps.back().weight_gradients;
  }
  timeline.after = alive;
  return timeline;
}

}  // namespace zeroplan
