// Linear layers: three matrix products, by Eigen in tiles of fp32.
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <utility>

#include "runtime/kernels/cpu_kernels.hpp"

namespace zeroplan::runtime::cpu {
namespace {

constexpr std::int64_t kTile = 128;   // rows and columns of a task's result
constexpr std::int64_t kInner = 256;  // of the sum that is taken at once

using Tile = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// A matrix in memory, or its transpose: element (i, j) at i * row_step + j * column_step.
template <typename T>
struct View {
  T* data = nullptr;
  std::int64_t row_step = 0, column_step = 0;
  T& at(std::int64_t i, std::int64_t j) const { return data[i * row_step + j * column_step]; }
};

template <typename T>
View<T> plain(T* data, std::int64_t columns) {
  return {data, columns, 1};
}
template <typename T>
View<T> transposed(T* data, std::int64_t columns) {
  return {data, 1, columns};
}

struct Range {
  std::int64_t begin, count;
};

template <typename T>
void load(const View<const T>& from, Range rows, Range columns, Tile& to) {
  to.resize(rows.count, columns.count);
  if (from.row_step == 1) {
    for (std::int64_t j = 0; j < columns.count; ++j) {
      const T* column = &from.at(rows.begin, columns.begin + j);
      for (std::int64_t i = 0; i < rows.count; ++i) to(i, j) = to_float(column[i]);
    }
    return;
  }
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const T* row = &from.at(rows.begin + i, columns.begin);
    float* out = &to(i, 0);
    for (std::int64_t j = 0; j < columns.count; ++j) out[j] = to_float(row[j]);
  }
}

// c (+)= a b (+ bias), c of m x n, sums over k in steps of kInner whatever the number of threads.
template <typename T>
struct Product {
  View<T> c;
  View<const T> a, b;
  std::int64_t m, n, k;
  const T* bias = nullptr;  // n
  bool accumulate = false;

  void run(ThreadPool& pool) const {
    const std::int64_t across = (n + kTile - 1) / kTile;
    pool.run((m + kTile - 1) / kTile * across, [&](std::int64_t task) {
      const std::int64_t row = task / across * kTile;
      const std::int64_t column = task % across * kTile;
      tile({row, std::min(kTile, m - row)}, {column, std::min(kTile, n - column)});
    });
  }

 private:
  void tile(Range rows, Range columns) const {
    Tile sum = Tile::Zero(rows.count, columns.count);
    Tile left;
    Tile right;
    for (std::int64_t from = 0; from < k; from += kInner) {
      const Range inner{from, std::min(kInner, k - from)};
      load(a, rows, inner, left);
      load(b, inner, columns, right);
      sum.noalias() += left * right;
    }
    for (std::int64_t i = 0; i < rows.count; ++i) {
      for (std::int64_t j = 0; j < columns.count; ++j) {
        T& to = c.at(rows.begin + i, columns.begin + j);
        float value = sum(i, j);
        if (bias != nullptr) value += to_float(bias[columns.begin + j]);
        if (accumulate) value += to_float(to);
        to = from_float<T>(value);
      }
    }
  }
};

// The weight as {in, out}: what rows of x are multiplied with.
template <typename T>
View<const T> in_out(const Run& run, const T* weight) {
  return run.call.transposed ? plain(weight, run.call.columns) : transposed(weight, run.call.inner);
}

template <typename T>
void linear_forward(const Run& run) {
  const KernelCall& call = run.call;
  const Product<T> product{.c = plain(run.at<T>(0), call.columns),
                           .a = plain<const T>(run.at<T>(1), call.inner),
                           .b = in_out<T>(run, run.at<T>(2)),
                           .m = call.rows,
                           .n = call.columns,
                           .k = call.inner,
                           .bias = run.at<T>(3),
                           .accumulate = call.accumulate};
  product.run(run.pool);
}

template <typename T>
void backward_input(const Run& run) {
  const KernelCall& call = run.call;
  const View<const T> weight = in_out<T>(run, run.at<T>(2));
  const Product<T> product{.c = plain(run.at<T>(0), call.inner),
                           .a = plain<const T>(run.at<T>(1), call.columns),
                           .b = {weight.data, weight.column_step, weight.row_step},
                           .m = call.rows,
                           .n = call.inner,
                           .k = call.columns,
                           .accumulate = call.accumulate};
  product.run(run.pool);
}

// {out, in} = d_y^T x, {in, out} = x^T d_y.
template <typename T>
void backward_weight(const Run& run) {
  const KernelCall& call = run.call;
  T* d_weight = run.at<T>(0);
  const T* d_y = run.at<T>(1);
  const T* x = run.at<T>(2);
  Product<T> product{
      .m = call.columns, .n = call.inner, .k = call.rows, .accumulate = call.accumulate};
  product.a = transposed<const T>(d_y, call.columns);
  product.b = plain<const T>(x, call.inner);
  if (call.transposed) {
    product.a = transposed<const T>(x, call.inner);
    product.b = plain<const T>(d_y, call.columns);
    std::swap(product.m, product.n);
  }
  product.c = plain(d_weight, product.n);
  product.run(run.pool);
}

template <typename T>
void backward_bias(const Run& run) {
  constexpr std::int64_t kColumns = 32;
  T* d_bias = run.at<T>(0);
  const T* d_y = run.at<T>(1);
  const std::int64_t n = run.call.columns;
  run.pool.run_ranges(n, kColumns, [&](std::int64_t begin, std::int64_t end) {
    std::array<double, kColumns> sum{};
    for (std::int64_t row = 0; row < run.call.rows; ++row) {
      for (std::int64_t i = begin; i < end; ++i) {
        sum[static_cast<std::size_t>(i - begin)] += static_cast<double>(to_float(d_y[row * n + i]));
      }
    }
    for (std::int64_t i = begin; i < end; ++i) {
      const float before = run.call.accumulate ? to_float(d_bias[i]) : 0.0F;
      const auto total = static_cast<float>(sum[static_cast<std::size_t>(i - begin)]);
      d_bias[i] = from_float<T>(before + total);
    }
  });
}

}  // namespace

template <typename T>
void run_linear(const Run& run) {
  switch (run.call.kernel) {
    case Kernel::linear_forward:
      return linear_forward<T>(run);
    case Kernel::linear_backward_input:
      return backward_input<T>(run);
    case Kernel::linear_backward_weight:
      return backward_weight<T>(run);
    default:  // linear_backward_bias
      return backward_bias<T>(run);
  }
}

ZP_CPU_KERNELS(run_linear);

}  // namespace zeroplan::runtime::cpu
