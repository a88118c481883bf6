// More ATen operations, as aten.hpp has them: those of gated linear attention (a convolution along
// the sequence, decays, triangular systems, states written chunk by chunk), and others that single
// families use.
// Sources: PyTorch 2.11 tools/autograd/derivatives.yaml, FunctionsManual.cpp, and the files named
// at the functions.
#pragma once

#include <string_view>

#include "model/graph/aten.hpp"

namespace zeroplan::aten {

// --- elementwise ---
Tensor exp(Tape& t, const Tensor& x);
Tensor softplus(Tape& t, const Tensor& x);
Tensor cumsum_last(Tape& t, const Tensor& x);
// x.clamp_(min, max): a copy of what it was is kept for the gradient.
Tensor clamp_in_place(Tape& t, const Tensor& x);

// --- copies ---
Tensor to_contiguous(Tape& t, const Tensor& x, DType dtype);  // memory_format=contiguous_format
// `missing` zeros at the end of dimension d: a copy even where nothing is missing.
Tensor pad_end(Tape& t, const Tensor& x, int d, std::int64_t missing);
// x.repeat_interleave(count, dim=2) of heads, (b, s, heads, d).
Tensor repeat_heads(Tape& t, const Tensor& x, std::int64_t count);
// whole.select(d, i).copy_(part): CopySlices. The result stands for `whole` afterwards.
Tensor write_slice(Tape& t, const Tensor& whole, const Tensor& part);

// --- products ---
// torch.einsum of two tensors, whose dimensions `of_a` and `of_b` name by letters, those of the
// result `out`: one batched product of copies that are laid out for it, where they are not so
// already (sumproduct_pair, Linear.cpp).
Tensor einsum(Tape& t,
              const Tensor& a,
              std::string_view of_a,
              const Tensor& b,
              std::string_view of_b,
              std::string_view out);
// torch.linalg.solve_triangular(matrix, right, upper=False, unitriangular=True)
Tensor solve_triangular(Tape& t, const Tensor& matrix, const Tensor& right);

}  // namespace zeroplan::aten
