#include "model/implementations/traced_values.hpp"

#include <algorithm>

namespace zeroplan {

Tensor TracedValues::of(const TracedOperand& operand) {
  switch (operand.kind) {
    case TracedOperand::Kind::none:
      return {};
    case TracedOperand::Kind::tensor:
      return at(operand.tensor);
    case TracedOperand::Kind::parameter:
      return t.parameter(operand.name);
    case TracedOperand::Kind::buffer:
      return named(graph_.buffers, operand.name);
    case TracedOperand::Kind::own_buffer:
      return named(graph_.buffers, prefix_of_first_call() + operand.name);
    case TracedOperand::Kind::input:
      return named(graph_.inputs, operand.name);
  }
  return {};
}

Tensor TracedValues::named(const std::vector<NamedTensor>& list, const std::string& name) {
  for (const NamedTensor& one : list) {
    if (one.name == name) return t.buffer(shape_of(one.tensor), dtype_of(one.tensor));
  }
  return {};
}

std::string TracedValues::prefix_of_first_call() const {
  for (const TracedCall& call : graph_.calls) {
    if (&graph_.blocks[static_cast<std::size_t>(call.block)] == &block_) return call.prefix;
  }
  return "";
}

Shape TracedValues::shape_of(const TracedTensor& tensor) const {
  std::vector<std::int64_t> sizes;
  sizes.reserve(tensor.shape.size());
  for (const SizeFormula& size : tensor.shape) sizes.push_back(size.at(c.batch, c.sequence));
  return Shape(sizes);
}

Shape TracedValues::shape_of(std::int32_t tensor) const {
  return shape_of(block_.tensors[static_cast<std::size_t>(tensor)]);
}

bool TracedValues::is_token_embedding(const TracedEvent& event) const {
  for (const TracedCall& call : graph_.calls) {
    for (const TracedEvent& other : graph_.blocks[static_cast<std::size_t>(call.block)].events) {
      if (other.kind == TracedEvent::Kind::operation && other.name == event.name)
        return &other == &event;
    }
  }
  return false;
}

bool TracedValues::pads(const TracedEvent& event) const {
  const bool has_mask = event.in.size() > 3 && event.in[3].kind != TracedOperand::Kind::none;
  return event.name == "scaled_dot_product_attention" && event.causal && !has_mask &&
         graph_.attention == "sdpa" && c.model.shape.kind == ModelKind::decoder &&
         hf::needs_mask(c);
}

bool TracedValues::some_attention_pads() const {
  const auto is_padded = [this](const TracedEvent& e) { return pads(e); };
  return std::any_of(graph_.blocks.begin(), graph_.blocks.end(), [&](const TracedBlock& block) {
    return std::any_of(block.events.begin(), block.events.end(), is_padded);
  });
}

bool TracedValues::lets_gradients_in(const std::string& module) const {
  const std::vector<std::string>& all = graph_.embeddings;
  return hf::asks_gradients_of_embeddings(c) &&
         std::find(all.begin(), all.end(), module) != all.end();
}

void TracedValues::drop(std::int32_t root) {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (block_.roots[i] == root) values_[i] = Tensor();
  }
}

}  // namespace zeroplan
