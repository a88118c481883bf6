#include <algorithm>
#include <array>
#include <utility>

#include "model/implementations/traced_call.hpp"

namespace zeroplan {
namespace {

Bytes read_by(const std::vector<Tensor>& tensors) {
  Bytes bytes;
  for (const Tensor& tensor : tensors) {
    if (tensor.defined()) bytes += aten::distinct_bytes(tensor);
  }
  return bytes;
}

OpKind kind_of(std::string_view name) {
  struct Row {
    std::string_view part;
    OpKind kind;
  };
  static constexpr std::array kRows = {
      Row{"scatter", OpKind::scatter},   Row{"index_put", OpKind::scatter},
      Row{"index_add", OpKind::scatter}, Row{"index", OpKind::gather},
      Row{"gather", OpKind::gather},     Row{"embedding", OpKind::gather},
      Row{"norm", OpKind::norm},         Row{"softmax", OpKind::softmax},
      Row{"sum", OpKind::reduction},     Row{"mean", OpKind::reduction},
      Row{"max", OpKind::reduction},     Row{"min", OpKind::reduction},
      Row{"var", OpKind::reduction},     Row{"any", OpKind::reduction},
      Row{"all", OpKind::reduction},     Row{"zeros", OpKind::fill},
      Row{"ones", OpKind::fill},         Row{"full", OpKind::fill},
      Row{"arange", OpKind::fill},       Row{"copy", OpKind::copy},
      Row{"clone", OpKind::copy},        Row{"pad", OpKind::copy},
      Row{"cat", OpKind::copy},          Row{"stack", OpKind::copy},
      Row{"repeat", OpKind::copy},       Row{"roll", OpKind::copy},
      Row{"flip", OpKind::copy}};
  for (const Row& row : kRows) {
    if (name.find(row.part) != std::string_view::npos) return row.kind;
  }
  return OpKind::pointwise;
}

// A gradient for every input that wants one: of the input's sizes, by one kernel that reads the
// outputs' gradients and what was saved. A view's is zeros with the gradient in its place.
BackwardFormula general_formula(std::string_view name,
                                const std::vector<Tensor>& in,
                                std::vector<Tensor> saved) {
  struct Wanted {
    Shape shape;
    DType dtype = DType::bf16;
  };
  std::vector<Wanted> wanted;
  for (const Tensor& input : in)
    wanted.push_back(
        {input.defined() ? input.shape() : Shape{}, input.defined() ? input.dtype() : DType::bf16});
  return [name, wanted, saved = std::move(saved)](Backward& b) {
    Bytes read = read_by(saved);
    for (std::size_t i = 0; i < b.outputs(); ++i) {
      if (b.gradient(i).defined()) read += aten::distinct_bytes(b.gradient(i));
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (!b.needs(i)) continue;
      Tensor gradient = b.tape.empty(wanted[i].shape.as_dense(), wanted[i].dtype);
      b.tape.launch({.name = name, .kind = kind_of(name), .traffic = read + gradient.bytes()});
      b.give(i, std::move(gradient));
    }
  };
}

}  // namespace

void play_general(TracedOperationCall& call) {
  const TracedEvent& e = call.e;
  Tape& t = call.t;
  const std::vector<Tensor>& in = call.in;
  const bool trains = t.grad_enabled() && std::any_of(in.begin(), in.end(), [](const Tensor& x) {
                        return x.defined() && x.requires_grad();
                      });
  std::vector<Tensor> saved;
  const auto save = [&](bool made_here) {
    for (const TracedOperand& operand : e.saves) {
      const bool made = operand.kind == TracedOperand::Kind::tensor &&
                        std::find(e.out.begin(), e.out.end(), operand.tensor) != e.out.end();
      if (made != made_here) continue;
      const Tensor value = call.v.of(operand);
      if (value.defined()) saved.push_back(t.save(value));
    }
  };
  if (trains) save(false);
  bool fresh = false;
  for (std::size_t i = 0; i < e.out.size(); ++i) {
    const Tensor* base = nullptr;
    for (std::size_t j = 0; j < e.in.size(); ++j) {
      const bool same = e.in[j].kind == TracedOperand::Kind::tensor && e.in[j].tensor != e.out[i] &&
                        call.v.share_storage(e.in[j].tensor, e.out[i]);
      if (same && in[j].defined()) base = &in[j];
    }
    fresh = fresh || base == nullptr;
    call.v.at(e.out[i]) =
        base != nullptr ? t.alias(*base, call.shape(i), "") : t.empty(call.shape(i), call.dtype(i));
  }
  const bool in_place = e.name.ends_with('_') && !e.name.starts_with('_');
  Bytes traffic = read_by(in);
  std::vector<Tensor*> outputs;
  for (const std::int32_t out : e.out) {
    Tensor& value = call.v.at(out);
    traffic += value.bytes();
    if (value.dtype() != DType::int64 && value.dtype() != DType::boolean) outputs.push_back(&value);
  }
  const bool computes = fresh || in_place;
  t.launch({.name = e.name,
            .kind = computes ? kind_of(e.name) : OpKind::view,
            .traffic = computes ? traffic : Bytes::zero(),
            .kernels = computes ? 1 : 0});
  if (!trains || outputs.empty()) return;
  save(true);
  std::vector<const Tensor*> inputs;
  for (const Tensor& input : in) inputs.push_back(&input);
  t.record(outputs, inputs, general_formula(e.name, in, std::move(saved)));
}

}  // namespace zeroplan
