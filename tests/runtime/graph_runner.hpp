// One rank without an engine: executes the calls of a graph's micro-batch, with memory that exists
// exactly as long as the graph's events say and holds NaNs before it is written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <span>
#include <stdexcept>
#include <vector>

#include "model/graph/graph.hpp"
#include "runtime/kernels/kernels.hpp"
#include "tests/runtime/hashed_model.hpp"

namespace zeroplan::testing {

class GraphRunner {
 public:
  using Buffer = std::vector<std::byte>;

  GraphRunner(const ModelGraph& graph, runtime::Kernels& kernels, std::vector<Buffer>& weights)
      : graph_(graph), kernels_(kernels), weights_(weights) {}

  // One micro-batch; the loss.
  float run(TokenBatch& batch) {
    batch_ = &batch;
    alive_.clear();
    gradients_.clear();
    play_micro_batch(graph_, *this);
    return loss_;
  }

  // What is left: the gradients, by parameter of the model.
  std::span<const std::byte> gradient(std::int32_t parameter) const {
    return alive_.at(gradients_.at(parameter));
  }
  std::size_t alive() const { return alive_.size(); }
  Bytes peak() const { return peak_; }

  // --- sink of play_micro_batch ---
  void begin(const PassStep&) {}
  void module_enter(const PassStep&, int) {}
  void module_exit(const PassStep&, int) {}
  void allocate(StorageId id, const Storage& storage) {
    const auto [at, fresh] = alive_.try_emplace(id);
    if (!fresh) throw std::logic_error("allocated twice");
    at->second.assign(static_cast<std::size_t>(storage.bytes.count()), std::byte{0xff});
    bytes_ += storage.bytes;
    peak_ = std::max(peak_, bytes_);
  }
  void release(StorageId id, const Storage& storage) {
    const auto loss = StorageId{static_cast<std::int32_t>(graph_.instances.size()) - 1,
                                graph_.block_of(graph_.instances.back()).output};
    if (id == loss) std::memcpy(&loss_, alive_.at(id).data(), sizeof loss_);
    if (alive_.erase(id) != 1) throw std::logic_error("released and not there");
    bytes_ -= storage.bytes;
  }
  void weight_gradient(const PassStep& step, const WeightGradient& gradient) {
    if (gradient.storage >= 0) note_gradient(step, gradient);
  }
  void operation(const PassStep& step, const Operation& operation) {
    const Block& block = block_of(step);
    const auto index = static_cast<std::size_t>(&operation - block.operations.data());
    const KernelCall& call = block.calls[index];
    const std::vector<OperandUse> uses = operand_uses(call);
    std::vector<runtime::Operand> operands;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      operands.push_back(operand(step, call.operands[i], uses[i]));
    }
    kernels_.run(call, operands);
  }

 private:
  const Block& block_of(const PassStep& step) const {
    return graph_.block_of(graph_.instances[static_cast<std::size_t>(step.instance)]);
  }
  std::int32_t parameter_of(const PassStep& step, std::int32_t index) const {
    const BlockInstance& instance = graph_.instances[static_cast<std::size_t>(step.instance)];
    return instance.parameters[static_cast<std::size_t>(index)];
  }
  void note_gradient(const PassStep& step, const WeightGradient& gradient) {
    gradients_[parameter_of(step, gradient.parameter)] = {step.instance, gradient.storage};
  }

  runtime::Operand operand(const PassStep& step, const KernelOperand& from, const OperandUse& use) {
    runtime::Operand result;
    result.elements = Elements::of(use.elements);
    result.dtype = use.type == OperandUse::Type::int64 ? DType::int64 : DType::fp32;
    Buffer* buffer = nullptr;
    switch (from.from) {
      case KernelOperand::From::none:
        break;
      case KernelOperand::From::storage:
        buffer = &alive_.at(resolve(graph_, step.instance, from.index));
        break;
      case KernelOperand::From::parameter:
        buffer = &weights_[static_cast<std::size_t>(parameter_of(step, from.index))];
        break;
      case KernelOperand::From::gradient:
        for (const WeightGradient& gradient : block_of(step).weight_gradients) {
          if (gradient.parameter == from.index && gradient.storage >= 0) {
            note_gradient(step, gradient);
          }
        }
        buffer = &alive_.at(gradients_.at(parameter_of(step, from.index)));
        break;
      case KernelOperand::From::ids:
        result.data = reinterpret_cast<std::byte*>(batch_->ids.data());
        return result;
      case KernelOperand::From::labels:
        result.data = reinterpret_cast<std::byte*>(batch_->labels.data());
        return result;
    }
    if (buffer == nullptr) return result;
    const auto size = static_cast<std::size_t>((result.elements * result.dtype).count());
    const auto first = static_cast<std::size_t>(from.first * width(result.dtype));
    if (from.count == 0 ? buffer->size() != size
                        : from.count != use.elements || first + size > buffer->size()) {
      throw std::logic_error("an operand of another size");
    }
    result.data = buffer->data() + first;
    return result;
  }

  const ModelGraph& graph_;
  runtime::Kernels& kernels_;
  std::vector<Buffer>& weights_;
  TokenBatch* batch_ = nullptr;
  std::map<StorageId, Buffer> alive_;
  std::map<std::int32_t, StorageId> gradients_;  // by parameter of the model
  Bytes bytes_, peak_;
  float loss_ = 0.0F;
};

}  // namespace zeroplan::testing
