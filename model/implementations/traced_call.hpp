// A recorded operation with its operands at hand. Internal to model/implementations/traced_*.cpp.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "model/implementations/hf_mamba_ssm.hpp"
#include "model/implementations/traced_values.hpp"

namespace zeroplan {

class TracedOperationCall {
 public:
  TracedOperationCall(TracedValues& values, const TracedEvent& event)
      : t(values.t), v(values), e(event) {
    for (const TracedOperand& operand : e.in) {
      Tensor value = v.of(operand);
      in.push_back(e.no_grad && value.defined() ? value.detached() : std::move(value));
    }
  }

  std::size_t tensors() const {
    return static_cast<std::size_t>(
        std::count_if(in.begin(), in.end(), [](const Tensor& x) { return x.defined(); }));
  }
  // std::out_of_range where the document gives no such operand or result.
  const Tensor& x(std::size_t i = 0) const { return in.at(i); }
  Shape shape(std::size_t i = 0) const { return v.shape_of(e.out.at(i)); }
  DType dtype(std::size_t i = 0) const { return v.dtype_of(e.out.at(i)); }
  int dim(std::size_t i = 0) const { return i < e.dims.size() ? static_cast<int>(e.dims[i]) : 0; }
  void give(Tensor result) { v.at(e.out.at(0)) = std::move(result); }

  Tape& t;
  TracedValues& v;
  const TracedEvent& e;
  std::vector<Tensor> in;
};

// Every operation that has no formula of its own: results of the recorded sizes, what autograd
// kept, and a gradient of each input's size.
void play_general(TracedOperationCall& call);

// The inputs of mamba_ssm's function: tensors, chunks and groups (traced_operations.cpp).
hf::SplitScanInputs split_scan_inputs(const TracedOperationCall& call);

// traced_routing.cpp
void play_flash_attention(TracedOperationCall& call);
void play_update_cache(TracedOperationCall& call);
void play_grouped_product(TracedOperationCall& call);
void play_index(TracedOperationCall& call);
void play_sort(TracedOperationCall& call);
void play_topk(TracedOperationCall& call);

}  // namespace zeroplan
