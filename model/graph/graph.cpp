#include "model/graph/graph.hpp"

#include <algorithm>
#include <unordered_set>

#include "base/check.hpp"

namespace zeroplan {

namespace {

// Follows the bytes alive through a pass, from zero at its entry.
class Liveness {
 public:
  explicit Liveness(const Block& block) : block_(block), is_weight_(block.storages.size(), false) {
    // Those that backward allocates; a fused loss makes some in forward, where they count as saved.
    std::vector<bool> in_backward(block.storages.size(), false);
    for (const Event& event : block.of(Pass::backward)) {
      if (event.kind == EventKind::allocate)
        in_backward[static_cast<std::size_t>(event.index)] = true;
    }
    for (const WeightGradient& gradient : block.weight_gradients) {
      if (gradient.storage < 0) continue;
      const auto i = static_cast<std::size_t>(gradient.storage);
      is_weight_[i] = in_backward[i];
    }
  }

  void module_enter(int) {}
  void module_exit(int) {}
  void operation(const Operation&) {}
  void saved(int) {}
  void allocate(int index, const Storage& storage) {
    const Bytes bytes = allocated_bytes(storage);
    if (is_weight_[static_cast<std::size_t>(index)]) {
      weights_ += bytes;
      fresh_weights_ += bytes;
    } else {
      alive_ += bytes;
      by_category_[static_cast<std::size_t>(storage.category)] += bytes;
    }
    note_peak();
  }
  void release(int, const Storage& storage) {
    alive_ -= allocated_bytes(storage);
    by_category_[static_cast<std::size_t>(storage.category)] -= allocated_bytes(storage);
  }
  void weight_gradient(const WeightGradient& gradient) {
    if (gradient.storage < 0) return;
    const auto i = static_cast<std::size_t>(gradient.storage);
    const Bytes bytes = allocated_bytes(block_.storages[i]);
    largest_weight = std::max(largest_weight, bytes);
    if (is_weight_[i]) {
      fresh_weights_ -= bytes;
      return;
    }
    // From the saved tensors to the engine.
    alive_ -= bytes;
    by_category_[static_cast<std::size_t>(block_.storages[i].category)] -= bytes;
    weights_ += bytes;
  }

  Bytes alive() const { return alive_; }
  const CategoryBytes& by_category() const { return by_category_; }
  Bytes weights() const { return weights_; }

  Peak peak;
  Bytes peak_keeping, peak_dropping, largest_weight;

 private:
  void note_peak() {
    if (alive_ > peak.total) {
      peak.total = alive_;
      peak.by_category = by_category_;
    }
    peak_keeping = std::max(peak_keeping, alive_ + weights_);
    peak_dropping = std::max(peak_dropping, alive_ + fresh_weights_);
  }

  const Block& block_;
  std::vector<bool> is_weight_;
  Bytes alive_, weights_, fresh_weights_;
  CategoryBytes by_category_{};
};

Bytes boundary(const Block& block, std::int32_t storage) {
  return storage < 0 ? Bytes::zero()
                     : allocated_bytes(block.storages[static_cast<std::size_t>(storage)]);
}

// What the output object keeps alive and autograd does not.
Bytes only_held(const Block& block) {
  std::vector<bool> saved(block.storages.size(), false);
  for (const Event& event : block.of(Pass::forward)) {
    if (event.kind == EventKind::save) saved[static_cast<std::size_t>(event.index)] = true;
  }
  Bytes held;
  for (const Event& event : block.of(Pass::drop_outputs)) {
    const auto i = static_cast<std::size_t>(event.index);
    if (event.kind == EventKind::release && !saved[i]) {
      held += allocated_bytes(block.storages[i]);
    }
  }
  return held;
}

}  // namespace

Bytes bytes_of_outputs(const ModelGraph& graph) {
  Bytes bytes;
  for (const BlockInstance& instance : graph.instances) {
    const Block& block = graph.block_of(instance);
    for (const Event& event : block.of(Pass::drop_outputs)) {
      if (event.kind != EventKind::release) continue;
      bytes += allocated_bytes(block.storages[static_cast<std::size_t>(event.index)]);
    }
  }
  return bytes;
}

Flops flops_of(const MatrixProduct& product) {
  return Flops::of(2.0 * static_cast<double>(product.batch) * static_cast<double>(product.m) *
                   static_cast<double>(product.n) * static_cast<double>(product.k));
}

Flops flops_of(const AttentionCall& call) {
  const double products = call.backward ? 5.0 : 2.0;
  const double pairs = static_cast<double>(call.batch) * static_cast<double>(call.heads) *
                       static_cast<double>(call.queries) * static_cast<double>(call.keys);
  return Flops::of(products * 2.0 * pairs * static_cast<double>(call.head_dim) *
                   (call.causal ? 0.5 : 1.0));
}

StorageId resolve(const ModelGraph& graph, std::int32_t instance, std::int32_t storage) {
  while (true) {
    const Block& block = graph.block_of(graph.instances[static_cast<std::size_t>(instance)]);
    if (storage == block.input) {
      --instance;
      return {instance, graph.block_of(graph.instances[static_cast<std::size_t>(instance)]).output};
    }
    if (storage == block.output_gradient) {
      ++instance;
      storage = graph.block_of(graph.instances[static_cast<std::size_t>(instance)]).input_gradient;
      continue;  // the gradient of a residual stream is passed on in place
    }
    for (const SharedUse& use : block.shared) {
      const SharedTensor& shared = graph.shared[static_cast<std::size_t>(use.slot)];
      if (use.produced && use.gradient == storage && shared.gradient_maker >= 0) {
        return resolve(graph, shared.gradient_maker, shared.gradient_storage);  // perhaps passed on
      }
      if (use.storage != storage) continue;
      return {shared.producer, shared.storage};
    }
    return {instance, storage};
  }
}

std::vector<PassStep> micro_batch(const ModelGraph& graph) {
  std::vector<PassStep> steps;
  const auto count = static_cast<std::int32_t>(graph.instances.size());
  steps.reserve(graph.instances.size());
  const auto checkpointed = [&](std::int32_t i) {
    return graph.instances[static_cast<std::size_t>(i)].checkpointed;
  };
  for (std::int32_t i = 0; i < count; ++i) {
    steps.push_back({i, checkpointed(i) ? Pass::forward_no_grad : Pass::forward});
  }
  const auto drop_outputs = [&](std::int32_t first, std::int32_t last) {
    for (std::int32_t i = first; i < last; ++i) steps.push_back({i, Pass::drop_outputs});
  };
  const std::int32_t early = graph.outputs_held_in_backward ? graph.dropped_before_backward : count;
  drop_outputs(0, early);
  for (std::int32_t i = count - 1; i >= 0; --i) {
    if (checkpointed(i)) steps.push_back({i, Pass::recompute});
    steps.push_back({i, Pass::backward});
  }
  drop_outputs(early, count);
  return steps;
}

std::vector<std::int32_t> gradient_order(const ModelGraph& graph) {
  std::vector<std::int32_t> order;
  for (auto instance = graph.instances.rbegin(); instance != graph.instances.rend(); ++instance) {
    const Block& block = graph.block_of(*instance);
    for (const Event& event : block.of(Pass::backward)) {
      if (event.kind != EventKind::weight_gradient) continue;
      const WeightGradient& gradient =
          block.weight_gradients[static_cast<std::size_t>(event.index)];
      if (!gradient.complete) continue;
      order.push_back(instance->parameters[static_cast<std::size_t>(gradient.parameter)]);
    }
  }
  return order;
}

BlockMemory summarize(const Block& block) {
  BlockMemory memory;
  memory.input = boundary(block, block.input);
  memory.output = boundary(block, block.output);
  memory.saves_input = block.saves_input;
  const auto run = [&](Pass pass) {
    Liveness liveness(block);
    play(block, pass, liveness);
    return liveness;
  };
  const Liveness forward = run(Pass::forward);
  memory.forward = forward.peak;
  memory.forward_no_grad = run(Pass::forward_no_grad).peak;
  const Liveness recompute = run(Pass::recompute);
  memory.recompute = recompute.peak;
  memory.recomputed = recompute.alive();
  if (!block.of(Pass::forward).empty()) {
    memory.held = only_held(block);
    // Alive now are the saved tensors, the held ones and the output, less the input if it died.
    const Bytes input = block.saves_input ? Bytes::zero() : memory.input;
    memory.saved = forward.alive() - memory.output - memory.held + input;
    memory.saved_by_category = forward.by_category();
    constexpr auto kActivations = static_cast<std::size_t>(MemoryCategory::activations);
    memory.saved_by_category[kActivations] += input - memory.output;
  }
  const Liveness backward = run(Pass::backward);
  memory.backward = backward.peak;
  memory.weight_gradients = backward.weights();
  memory.largest_weight_gradient = backward.largest_weight;
  memory.backward_keeping_weight_gradients = backward.peak_keeping;
  memory.backward_dropping_weight_gradients = backward.peak_dropping;
  return memory;
}

PassCost cost(const Block& block, Pass pass) {
  PassCost total;
  for (const Event& event : block.of(pass)) {
    if (event.kind != EventKind::operation) continue;
    const Operation& operation = block.operations[static_cast<std::size_t>(event.index)];
    const std::int64_t times = operation.times;
    (operation.kind == OpKind::attention ? total.attention : total.matmul) +=
        operation.flops * static_cast<double>(times);
    total.traffic[static_cast<std::size_t>(operation.kind)] += operation.traffic * times;
    total.kernels += operation.kernels * times;
    total.operations += operation.kernels > 0 ? times : 0;
    total.dispatched += times;
  }
  return total;
}

Elements autocast_copies(const ModelGraph& graph, const BlockInstance& instance) {
  const Block& block = graph.blocks[static_cast<std::size_t>(instance.block)];
  Elements copied;
  for (const BlockParameter& parameter : block.parameters) {
    if (parameter.autocast) copied += parameter.numel;
  }
  return copied;
}

Elements autocast_copies(const ModelGraph& graph) {
  std::unordered_set<std::int32_t> seen;
  Elements copied;
  for (const BlockInstance& instance : graph.instances) {
    const Block& block = graph.blocks[static_cast<std::size_t>(instance.block)];
    for (std::size_t i = 0; i < block.parameters.size(); ++i) {
      if (!block.parameters[i].autocast) continue;
      if (!seen.insert(instance.parameters[i]).second) continue;
      copied += block.parameters[i].numel;
    }
  }
  return copied;
}

}  // namespace zeroplan
