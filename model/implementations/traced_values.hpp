// The tensors of a traced block while it is played on a Tape.
#pragma once

#include <string>
#include <vector>

#include "model/graph/traced_graph.hpp"
#include "model/implementations/hf_common.hpp"

namespace zeroplan {

// By their numbers in the block.
class TracedValues {
 public:
  TracedValues(Tape& tape,
               const hf::Context& context,
               const TracedGraph& graph,
               const TracedBlock& block)
      : t(tape), c(context), graph_(graph), block_(block), values_(block.tensors.size()) {}

  Tensor& at(std::int32_t tensor) { return values_[static_cast<std::size_t>(tensor)]; }
  // What an operand is here; undefined for none.
  Tensor of(const TracedOperand& operand);
  Shape shape_of(std::int32_t tensor) const;
  DType dtype_of(const TracedTensor& tensor) const {
    return tensor.of_model ? c.options.dtype : tensor.dtype;
  }
  DType dtype_of(std::int32_t tensor) const {
    return dtype_of(block_.tensors[static_cast<std::size_t>(tensor)]);
  }
  // All tensors of a storage go.
  void drop(std::int32_t root);
  bool share_storage(std::int32_t a, std::int32_t b) const {
    return block_.roots[static_cast<std::size_t>(a)] == block_.roots[static_cast<std::size_t>(b)];
  }
  // Whether it is the first lookup of the model, whose result peft lets gradients go up to.
  bool is_token_embedding(const TracedEvent& event) const;
  // Whether attention that was recorded without a mask has one here: rows that end in padding,
  // where the class leaves a causal mask to PyTorch.
  bool pads(const TracedEvent& event) const;
  bool some_attention_pads() const;
  // Whether what a module returns requires a gradient, whatever it was made of.
  bool lets_gradients_in(const std::string& module) const;

  Tape& t;
  const hf::Context& c;

 private:
  Shape shape_of(const TracedTensor& tensor) const;
  Tensor named(const std::vector<NamedTensor>& list, const std::string& name);
  // Calls of one block have buffers of the same sizes.
  std::string prefix_of_first_call() const;

  const TracedGraph& graph_;
  const TracedBlock& block_;
  std::vector<Tensor> values_;
};

}  // namespace zeroplan
