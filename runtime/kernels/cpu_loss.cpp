// Cross entropy over the vocabulary: the mean over the tokens whose label is not negative, or what
// a chunk of the rows adds to it.
#include <algorithm>
#include <cmath>

#include "runtime/kernels/cpu_kernels.hpp"

namespace zeroplan::runtime::cpu {
namespace {

constexpr std::int64_t kLossRows = 4;

// Of all rows of the loss, whichever the call's are.
std::int64_t labelled(const Run& run, std::size_t operand) {
  const std::int64_t* labels = run.at<std::int64_t>(operand);
  return std::count_if(
      labels, labels + labels_of(run.call), [](std::int64_t label) { return label >= 0; });
}

// lse = log(sum(exp(logits))), by the largest of the row.
template <typename T>
void loss_forward(const Run& run) {
  const std::int64_t rows = run.call.rows;
  const std::int64_t columns = run.call.columns;
  float* lse = run.at<float>(1);
  const T* logits = run.at<T>(2);
  const std::int64_t* labels = run.at<std::int64_t>(3) + run.call.chunk.first;
  run.pool.run_ranges(rows, kLossRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* x = logits + row * columns;
      float largest = to_float(x[0]);
      for (std::int64_t i = 1; i < columns; ++i) largest = std::max(largest, to_float(x[i]));
      float sum = 0.0F;
      for (std::int64_t i = 0; i < columns; ++i) sum += std::exp(to_float(x[i]) - largest);
      lse[row] = largest + std::log(sum);
    }
  });
  double total = 0.0;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (labels[row] < 0) continue;
    total += static_cast<double>(lse[row] - to_float(logits[row * columns + labels[row]]));
  }
  const std::int64_t count = std::max<std::int64_t>(1, labelled(run, 3));
  float& loss = *run.at<float>(0);
  const auto part = static_cast<float>(total / static_cast<double>(count));
  loss = run.call.accumulate ? loss + part : part;
}

template <typename T>
void backward(const Run& run) {
  const std::int64_t rows = run.call.rows;
  const std::int64_t columns = run.call.columns;
  T* d_logits = run.at<T>(0);
  const T* logits = run.at<T>(1);
  const float* lse = run.at<float>(2);
  const std::int64_t* labels = run.at<std::int64_t>(3) + run.call.chunk.first;
  const std::int64_t count = std::max<std::int64_t>(1, labelled(run, 3));
  const auto factor = static_cast<float>(run.call.scale / static_cast<double>(count));
  run.pool.run_ranges(rows, kLossRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      T* d = d_logits + row * columns;
      const T* x = logits + row * columns;
      if (labels[row] < 0) {
        std::fill(d, d + columns, T{});
        continue;
      }
      for (std::int64_t i = 0; i < columns; ++i) {
        const float probability = std::exp(to_float(x[i]) - lse[row]);
        const float target = i == labels[row] ? 1.0F : 0.0F;
        d[i] = from_float<T>((probability - target) * factor);
      }
    }
  });
}

}  // namespace

template <typename T>
void run_loss(const Run& run) {
  if (run.call.kernel == Kernel::cross_entropy_forward) return loss_forward<T>(run);
  backward<T>(run);
}

ZP_CPU_KERNELS(run_loss);

}  // namespace zeroplan::runtime::cpu
