#include "model/implementations/traced_values.hpp"

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
    case TracedOperand::Kind::input: {
      const auto& list =
          operand.kind == TracedOperand::Kind::buffer ? graph_.buffers : graph_.inputs;
      for (const NamedTensor& named : list) {
        if (named.name == operand.name)
          return t.buffer(shape_of(named.tensor), dtype_of(named.tensor));
      }
      return {};
    }
  }
  return {};
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

void TracedValues::drop(std::int32_t root) {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (block_.roots[i] == root) values_[i] = Tensor();
  }
}

}  // namespace zeroplan
