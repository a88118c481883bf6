#include "runtime/engine/graph_runner.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>

#include "base/check.hpp"

namespace zeroplan::runtime {

GraphRunner::GraphRunner(const ModelGraph& graph,
                         std::size_t parameters,
                         Kernels& kernels,
                         Memory& memory,
                         Device& device,
                         Timeline* timeline)
    : graph_(graph),
      kernels_(kernels),
      memory_(memory),
      device_(device),
      timeline_(timeline),
      passes_(micro_batch(graph)),
      partial_(parameters) {
  for (const BlockInstance& instance : graph.instances) {
    const Block& block = graph.block_of(instance);
    ZP_CHECK(block.calls.size() == block.operations.size(),
             "a block without kernel calls cannot be run: " + block.name);
    storages_.emplace_back(block.storages.size());
  }
}

GraphRunner::~GraphRunner() {
  if (!workspace_) return;
  try {
    kernels_.use_workspace(nullptr);
  } catch (const std::exception& error) {
    // The device has failed, and who noticed has said so.
    std::fprintf(stderr, "zeroplan: %s\n", error.what());
  }
}

Buffer& GraphRunner::buffer_of(std::int32_t instance, std::int32_t storage) {
  const StorageId id = resolve(graph_, instance, storage);
  return storages_[static_cast<std::size_t>(id.instance)][static_cast<std::size_t>(id.storage)];
}

// Ids first, labels behind them.
void GraphRunner::begin_micro_batch(const MicroBatch& batch) {
  ZP_CHECK(batch.ids.size() == batch.labels.size(), "a label for each token");
  tokens_ = static_cast<std::int64_t>(batch.ids.size());
  ZP_CHECK(graph_.batch >= Elements::of(2 * tokens_) * DType::int64,
           "the graph's batch holds ids and labels");
  const Bytes scratch = kernels_.workspace_bytes();
  if (!workspace_ && scratch > Bytes::zero()) {
    workspace_ = memory_.allocate(
        scratch, MemoryCategory::temporaries, Place::device, "the kernels' workspace");
    kernels_.use_workspace(workspace_.data());
  }
  batch_ = memory_.allocate(graph_.batch, MemoryCategory::activations, Place::device, "the batch");
  const Bytes half = Elements::of(tokens_) * DType::int64;
  device_.upload(batch_.data(), batch.ids.data(), half);
  device_.upload(batch_.data() + half.count(), batch.labels.data(), half);
}

void GraphRunner::run(const PassStep& pass, const Hooks& hooks, double loss_gradient) {
  const Block& block = graph_.block_of(graph_.instances[static_cast<std::size_t>(pass.instance)]);
  for (const Event& event : block.of(pass.pass)) {
    const auto index = static_cast<std::size_t>(event.index);
    switch (event.kind) {
      case EventKind::module_enter:
      case EventKind::module_exit:
        hooks.module_event(pass, event);
        break;
      case EventKind::operation:
        run_call(pass, event.index, hooks, loss_gradient);
        break;
      case EventKind::allocate: {
        const Storage& storage = block.storages[index];
        buffer_of(pass.instance, event.index) =
            memory_.allocate(storage.bytes, storage.category, Place::device, block.name);
        break;
      }
      case EventKind::release:
        buffer_of(pass.instance, event.index).reset();
        break;
      case EventKind::save:
      case EventKind::passes_beside:
        break;
      case EventKind::weight_gradient:
        announce(pass, block.weight_gradients[index], hooks);
        break;
    }
  }
  graph_.free_behind(pass, [this](StorageId id) { buffer_of(id.instance, id.storage).reset(); });
}

void GraphRunner::announce(const PassStep& pass,
                           const WeightGradient& gradient,
                           const Hooks& hooks) {
  const BlockInstance& instance = graph_.instances[static_cast<std::size_t>(pass.instance)];
  const std::int32_t parameter = instance.parameters[static_cast<std::size_t>(gradient.parameter)];
  StorageId& partial = partial_[static_cast<std::size_t>(parameter)];
  if (gradient.storage >= 0) partial = resolve(graph_, pass.instance, gradient.storage);
  if (!gradient.complete) return;
  Buffer& buffer = storages_[static_cast<std::size_t>(partial.instance)]
                            [static_cast<std::size_t>(partial.storage)];
  partial = {};
  hooks.gradient(parameter, std::move(buffer));
}

// The storage of this block that its gradient is announced in, or the part that an earlier block
// began.
Operand GraphRunner::gradient_operand(const PassStep& pass, std::int32_t parameter) {
  const BlockInstance& instance = graph_.instances[static_cast<std::size_t>(pass.instance)];
  const Block& block = graph_.block_of(instance);
  StorageId id =
      partial_[static_cast<std::size_t>(instance.parameters[static_cast<std::size_t>(parameter)])];
  for (const WeightGradient& gradient : block.weight_gradients) {
    if (gradient.parameter != parameter || gradient.storage < 0) continue;
    id = resolve(graph_, pass.instance, gradient.storage);
  }
  ZP_CHECK(id.instance >= 0, "a gradient has a storage: " + block.name);
  const Buffer& buffer =
      storages_[static_cast<std::size_t>(id.instance)][static_cast<std::size_t>(id.storage)];
  const Storage& storage = graph_.storage(id);
  ZP_CHECK(static_cast<bool>(buffer), "a gradient's storage is alive: " + block.name);
  return {buffer.data(), storage.elements, storage.dtype};
}

// The storage, or the range of it that the call uses.
Operand GraphRunner::storage_operand(const PassStep& pass, const KernelOperand& operand) {
  const Block& block = graph_.block_of(graph_.instances[static_cast<std::size_t>(pass.instance)]);
  const Buffer& buffer = buffer_of(pass.instance, operand.index);
  ZP_CHECK(static_cast<bool>(buffer), "an operand is alive: " + block.name);
  const Storage& storage = block.storages[static_cast<std::size_t>(operand.index)];
  if (operand.count == 0) return {buffer.data(), storage.elements, storage.dtype};
  const Elements first = Elements::of(operand.first);
  const Elements count = Elements::of(operand.count);
  ZP_CHECK(operand.first >= 0 && first + count <= storage.elements,
           "a range lies in its storage: " + block.name);
  return {buffer.data() + (first * storage.dtype).count(), count, storage.dtype};
}

Operand GraphRunner::operand(const PassStep& pass,
                             const KernelOperand& operand,
                             const Hooks& hooks) {
  const BlockInstance& instance = graph_.instances[static_cast<std::size_t>(pass.instance)];
  const auto index = static_cast<std::size_t>(std::max(0, operand.index));
  switch (operand.from) {
    case KernelOperand::From::none:
      return {};
    case KernelOperand::From::storage:
      return storage_operand(pass, operand);
    case KernelOperand::From::parameter:
      return hooks.weights(instance.parameters[index]);
    case KernelOperand::From::gradient:
      return gradient_operand(pass, operand.index);
    case KernelOperand::From::ids:
      return {batch_.data(), Elements::of(tokens_), DType::int64};
    case KernelOperand::From::labels:
      return {batch_.data() + (Elements::of(tokens_) * DType::int64).count(),
              Elements::of(tokens_),
              DType::int64};
  }
  return {};
}

void GraphRunner::run_call(const PassStep& pass,
                           std::int32_t index,
                           const Hooks& hooks,
                           double loss_gradient) {
  const Block& block = graph_.block_of(graph_.instances[static_cast<std::size_t>(pass.instance)]);
  const KernelCall& call = block.calls[static_cast<std::size_t>(index)];
  if (call.kernel == Kernel::none) return;
  operands_.clear();
  for (const KernelOperand& from : call.operands) operands_.push_back(operand(pass, from, hooks));
  if (call.kernel != Kernel::cross_entropy_backward || loss_gradient == call.scale) {
    run_kernel(pass, call);
    return;
  }
  KernelCall scaled = call;
  scaled.scale = loss_gradient;
  run_kernel(pass, scaled);
}

void GraphRunner::run_kernel(const PassStep& pass, const KernelCall& call) {
  const BlockInstance& instance = graph_.instances[static_cast<std::size_t>(pass.instance)];
  const Timeline::Scope scope(
      timeline_,
      Timeline::compute,
      name(call.kernel),
      instance.prefix.empty() ? graph_.block_of(instance).name : instance.prefix);
  kernels_.run(call, operands_);
}

float GraphRunner::loss() const {
  const auto last = graph_.instances.size() - 1;
  const Buffer& buffer =
      storages_[last][static_cast<std::size_t>(graph_.block_of(graph_.instances[last]).output)];
  ZP_CHECK(static_cast<bool>(buffer), "the loss is read after the forward pass");
  float value = 0.0F;
  device_.download(&value, buffer.data(), Elements::of(1) * DType::fp32);
  return value;
}

void GraphRunner::release_loss() {
  const auto last = graph_.instances.size() - 1;
  storages_[last][static_cast<std::size_t>(graph_.block_of(graph_.instances[last]).output)].reset();
}

void GraphRunner::clear() {
  for (std::vector<Buffer>& instance : storages_) {
    for (Buffer& buffer : instance) buffer.reset();
  }
  batch_.reset();
}

}  // namespace zeroplan::runtime
