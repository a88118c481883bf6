#include "model/newton_schulz.hpp"

#include <algorithm>
#include <utility>

namespace zeroplan {
namespace {

constexpr std::int64_t kSteps = 5;
constexpr DType kWithin = DType::fp16;  // bf16 for the standard method: as wide

Bytes whole(const MuonMatrices& matrices, DType dtype) {
  return Elements::of(matrices.count * matrices.rows * matrices.columns) * dtype;
}

Bytes small(const MuonMatrices& matrices) {
  const std::int64_t n = std::min(matrices.rows, matrices.columns);
  return Elements::of(matrices.count * n * n) * kWithin;
}

// zeropower_via_gram_newtonschulz: a square matrix gains nothing.
bool iterates_on_gram(const MuonMatrices& matrices, NewtonSchulz method) {
  return method == NewtonSchulz::gram && matrices.rows != matrices.columns;
}

class Tensors {
 public:
  Tensors(const MuonMatrices& matrices, DType gradient)
      : x_(whole(matrices, kWithin)),
        r_(small(matrices)),
        update_(whole(matrices, gradient)),
        tall_(matrices.rows > matrices.columns) {}

  std::vector<TensorEvent> gram() {
    const int x = make(x_);
    int r[5];  // X X^T, two sums of the first polynomial, the second's first, the first polynomial
    for (int& one : r) one = make(r_);
    drop(r[3]);
    if (!tall_) drop(r[1]);
    const int restarted = make(x_);
    drop(x);
    if (!tall_) r[1] = make(r_);
    r[3] = make(r_);
    const int last = make(r_);
    for (const int gone : {r[0], r[4], r[1], last, r[2]}) drop(gone);
    const int result = make(x_);
    drop(restarted);
    drop(r[3]);
    cast(result);
    return std::move(events_);
  }

  // `casts`: the iteration's type is not the gradient's.
  std::vector<TensorEvent> standard(bool casts) {
    int x = make(x_);
    const int scaled = make(x_);
    std::vector<int> before;  // X X^T of the step at hand, and a sum that is used again
    for (int step = 0; step < kSteps; ++step) {
      std::vector<int> sums;
      if (step == 0) before.push_back(make(r_));
      while (sums.size() + before.size() < 3) sums.push_back(make(r_));
      const int polynomial = make(r_);
      // Where X is transposed one sum stays for the next step.
      int kept = -1;
      if (tall_) {
        kept = sums.back();
        sums.pop_back();
      }
      for (const int gone : before) drop(gone);
      for (const int gone : sums) drop(gone);
      const int next = make(x_);
      drop(x);
      x = next;
      before.assign(1, polynomial);
      if (kept >= 0) before.push_back(kept);
    }
    for (const int gone : before) drop(gone);
    drop(scaled);
    if (casts) cast(x);
    return std::move(events_);
  }

 private:
  int make(Bytes bytes) {
    events_.push_back({made_, bytes});
    return made_++;
  }
  void drop(int tensor) { events_.push_back({tensor, Bytes::zero()}); }
  void cast(int result) {
    make(update_);
    drop(result);
  }

  Bytes x_, r_, update_;
  bool tall_;
  int made_ = 0;
  std::vector<TensorEvent> events_;
};

}  // namespace

NewtonSchulzProducts newton_schulz_products(const MuonMatrices& matrices, NewtonSchulz method) {
  NewtonSchulzProducts products;
  products.n = std::min(matrices.rows, matrices.columns);
  products.m = std::max(matrices.rows, matrices.columns);
  const bool gram = iterates_on_gram(matrices, method);
  products.wide = gram ? 4 : 2 * kSteps;
  products.square = gram ? 14 : kSteps;
  return products;
}

NewtonSchulzTraffic newton_schulz_traffic(const MuonMatrices& matrices,
                                          NewtonSchulz method,
                                          DType gradient) {
  // Gradient and momentum are read for the norm, and for the sum, which writes both and X; the
  // result is scaled and cast.
  const Bytes own = whole(matrices, gradient);
  const Bytes x = whole(matrices, kWithin);
  NewtonSchulzTraffic traffic;
  traffic.bytes = own * 7 + x * 2;
  traffic.kernels = 4;
  if (iterates_on_gram(matrices, method)) {
    traffic.bytes += small(matrices) * 34;
    traffic.kernels += 15;
  } else {
    // Each polynomial reads R and writes two sums of it; X is scaled.
    traffic.bytes += small(matrices) * (3 * kSteps) + x * (2 * kSteps);
    traffic.kernels += 2 * kSteps;
  }
  return traffic;
}

std::vector<TensorEvent> newton_schulz_tensors(const MuonMatrices& matrices,
                                               NewtonSchulz method,
                                               DType gradient) {
  Tensors tensors(matrices, gradient);
  if (iterates_on_gram(matrices, method)) return tensors.gram();
  return tensors.standard(method == NewtonSchulz::gram || gradient != DType::bf16);
}

Bytes newton_schulz_peak(const MuonMatrices& matrices, NewtonSchulz method, DType gradient) {
  Bytes held;
  Bytes peak;
  std::vector<Bytes> sizes;
  for (const TensorEvent& event : newton_schulz_tensors(matrices, method, gradient)) {
    if (event.bytes > Bytes::zero()) {
      sizes.push_back(event.bytes);
      held += event.bytes;
    } else {
      held -= sizes[static_cast<std::size_t>(event.tensor)];
    }
    peak = std::max(peak, held);
  }
  return peak;
}

}  // namespace zeroplan
