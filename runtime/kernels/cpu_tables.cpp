// Lookups in tables, their gradients, and rotary positions.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/kernels/cpu_kernels.hpp"

namespace zeroplan::runtime::cpu {
namespace {

constexpr std::int64_t kTableRows = 8;

template <typename T>
void embedding_forward(const Run& run) {
  T* out = run.at<T>(0);
  const std::int64_t* ids = run.at<std::int64_t>(1);
  const T* table = run.at<T>(2);
  const std::int64_t n = run.call.columns;
  run.pool.run_ranges(run.call.rows, kTableRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::copy_n(table + ids[row] * n, n, out + row * n);
    }
  });
}

// d_table[row] (+)= the sum of d[i] over `members`, in their order.
template <typename T>
void sum_rows(
    T* d_row, const T* d, const std::int64_t* first, const std::int64_t* last, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    float sum = to_float(d_row[i]);
    for (const std::int64_t* row = first; row != last; ++row) sum += to_float(d[*row * n + i]);
    d_row[i] = from_float<T>(sum);
  }
}

// Tokens are grouped by id, in their order within a group; a group is one task.
template <typename T>
void embedding_backward(const Run& run) {
  T* d_table = run.at<T>(0);
  const std::int64_t* ids = run.at<std::int64_t>(1);
  const T* d_out = run.at<T>(2);
  const std::int64_t n = run.call.columns;
  if (!run.call.accumulate) std::fill_n(d_table, run.call.inner * n, T{});
  std::vector<std::int64_t> order(static_cast<std::size_t>(run.call.rows));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(
      order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return ids[a] < ids[b]; });
  std::vector<std::int64_t> groups;  // where each begins
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || ids[order[i]] != ids[order[i - 1]])
      groups.push_back(static_cast<std::int64_t>(i));
  }
  groups.push_back(run.call.rows);
  run.pool.run(static_cast<std::int64_t>(groups.size()) - 1, [&](std::int64_t group) {
    const auto at = static_cast<std::size_t>(group);
    const std::int64_t* first = order.data() + groups[at];
    sum_rows(d_table + ids[*first] * n, d_out, first, order.data() + groups[at + 1], n);
  });
}

template <typename T>
void position_forward(const Run& run) {
  T* x = run.at<T>(0);
  const T* table = run.at<T>(1);
  const std::int64_t n = run.call.columns;
  run.pool.run_ranges(run.call.rows, kTableRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* position = table + (row % run.call.sequence) * n;
      T* out = x + row * n;
      for (std::int64_t i = 0; i < n; ++i) {
        out[i] = from_float<T>(to_float(out[i]) + to_float(position[i]));
      }
    }
  });
}

template <typename T>
void position_backward(const Run& run) {
  T* d_table = run.at<T>(0);
  const T* d_x = run.at<T>(1);
  const std::int64_t n = run.call.columns;
  const std::int64_t period = run.call.sequence;
  if (!run.call.accumulate) std::fill_n(d_table, run.call.inner * n, T{});
  run.pool.run(period, [&](std::int64_t position) {
    for (std::int64_t i = 0; i < n; ++i) {
      float sum = to_float(d_table[position * n + i]);
      for (std::int64_t row = position; row < run.call.rows; row += period) {
        sum += to_float(d_x[row * n + i]);
      }
      d_table[position * n + i] = from_float<T>(sum);
    }
  });
}

// Rotates pairs (i, i + D/2) of a head by position * base^(-2 i / D). Su et al. 2021,
// arXiv:2104.09864, in the order of transformers' rotate_half. Backward turns the other way.
template <typename T>
void rotate(const Run& run, T* x, std::int64_t heads, float direction) {
  const std::int64_t dim = run.call.head_dim;
  const std::int64_t half = dim / 2;
  std::vector<float> frequency(static_cast<std::size_t>(half));
  for (std::int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    frequency[static_cast<std::size_t>(i)] =
        1.0F / std::pow(static_cast<float>(run.call.rotary_base), exponent);
  }
  run.pool.run_ranges(run.call.rows, kTableRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto position = static_cast<float>(row % run.call.sequence);
      for (std::int64_t i = 0; i < half; ++i) {
        const float angle = position * frequency[static_cast<std::size_t>(i)];
        const float c = std::cos(angle);
        const float s = std::sin(angle) * direction;
        for (std::int64_t head = 0; head < heads; ++head) {
          T* at = x + (row * heads + head) * dim + i;
          const float a = to_float(at[0]);
          const float b = to_float(at[half]);
          at[0] = from_float<T>(a * c - b * s);
          at[half] = from_float<T>(b * c + a * s);
        }
      }
    }
  });
}

}  // namespace

template <typename T>
void run_table(const Run& run) {
  switch (run.call.kernel) {
    case Kernel::embedding_forward:
      return embedding_forward<T>(run);
    case Kernel::embedding_backward:
      return embedding_backward<T>(run);
    case Kernel::position_forward:
      return position_forward<T>(run);
    case Kernel::position_backward:
      return position_backward<T>(run);
    default: {  // rotary_*
      const float direction = run.call.kernel == Kernel::rotary_forward ? 1.0F : -1.0F;
      rotate(run, run.at<T>(0), run.call.heads, direction);
      rotate(run, run.at<T>(1), run.call.kv_heads, direction);
    }
  }
}

ZP_CPU_KERNELS(run_table);

}  // namespace zeroplan::runtime::cpu
