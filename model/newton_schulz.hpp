// The Newton-Schulz iteration with which Muon orthogonalises the update of a matrix: the products
// it takes, the bytes it streams, the tensors it makes.
//
// Symbols: a matrix has n rows and m columns, n <= m, one that is taller than wide is transposed;
// X is of n m elements, R of n n. Sizes in elements, of 16 bits within the iteration.
//
// Source: deepspeed/runtime/zero/muon/original_muon.py of 0.19.6 (muon_update,
// zeropower_via_gram_newtonschulz, zeropower_via_newtonschulz5), which torch.compile compiles: what
// is made, what is used again and what is fused is the code that inductor of torch 2.11 writes for
// it (TORCH_LOGS=output_code). Left out: the first matrix of a process, for whose sizes alone code
// is compiled until another comes, and what inductor makes to time its kernels in the first step.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.hpp"
#include "model/dtype.hpp"

namespace zeroplan {

// ds_config's ns_method.
enum class NewtonSchulz { gram, standard };

// Matrices of one parameter, which are orthogonalised at once: none where `count` is 0.
struct MuonMatrices {
  std::int64_t count = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool any() const { return count > 0; }
  friend bool operator==(const MuonMatrices&, const MuonMatrices&) = default;
};

// [M4] Products of one update. gram: 4 of 2 n n m and 14 of 2 n n n floating-point operations, on
// R = X X^T, with a restart behind the second of five iterations. standard, and gram where n = m:
// five times X X^T, A A and B X, of 2 n n m, 2 n n n and 2 n n m. Checked by
// tests/unit/model/newton_schulz_test.cpp.
struct NewtonSchulzProducts {
  std::int64_t n = 0, m = 0;
  std::int64_t wide = 0;    // with X
  std::int64_t square = 0;  // of R's size alone
};
NewtonSchulzProducts newton_schulz_products(const MuonMatrices& matrices, NewtonSchulz method);

// Kernels beside the products, and what they read and write: momentum and gradient, casts, the
// sums of the polynomials. `gradient`: of gradient, momentum and update.
struct NewtonSchulzTraffic {
  Bytes bytes;
  std::int64_t kernels = 0;
};
NewtonSchulzTraffic newton_schulz_traffic(const MuonMatrices& matrices,
                                          NewtonSchulz method,
                                          DType gradient);

// A tensor that is made, or goes; `tensor` counts those that are made, from 0. The one that is
// left at the end is the update.
struct TensorEvent {
  int tensor = 0;
  Bytes bytes;  // zero: it goes
};
std::vector<TensorEvent> newton_schulz_tensors(const MuonMatrices& matrices,
                                               NewtonSchulz method,
                                               DType gradient);

// [M4] Most bytes of those at once, the update with them: gram max(X + 6 R, 2 X + 3 R), standard
// max(2 X + 4 R, 3 X + R); where the matrix is taller than wide gram's second term and standard's
// have one R more.
Bytes newton_schulz_peak(const MuonMatrices& matrices, NewtonSchulz method, DType gradient);

}  // namespace zeroplan
