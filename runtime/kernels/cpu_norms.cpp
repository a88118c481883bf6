// RMSNorm and layer norm. A row's statistics and its gradient are one task; the gradients of weight
// and bias are sums over all rows, taken column by column in the order of the rows.
#include <array>
#include <cmath>

#include "runtime/kernels/cpu_kernels.hpp"

namespace zeroplan::runtime::cpu {
namespace {

constexpr std::int64_t kNormRows = 8;
constexpr std::int64_t kColumns = 32;

// y = (x - mean) rstd weight + bias. RMSNorm: mean = 0, no bias; Zhang and Sennrich 2019,
// arXiv:1910.07467. transformers rounds the normalized x to the weights' format before it
// multiplies; here it stays in fp32.
template <typename T>
struct Norm {
  const Run& run;
  const bool centered;  // layer norm

  std::int64_t rows() const { return run.call.rows; }
  std::int64_t columns() const { return run.call.columns; }

  void forward() const {
    T* y = run.at<T>(0);
    float* means = centered ? run.at<float>(1) : nullptr;
    float* rstds = run.at<float>(centered ? 2 : 1);
    const T* x = run.at<T>(centered ? 3 : 2);
    const T* weight = run.at<T>(centered ? 4 : 3);
    const T* bias = centered ? run.at<T>(5) : nullptr;
    const std::int64_t n = columns();
    run.pool.run_ranges(rows(), kNormRows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* in = x + row * n;
        T* out = y + row * n;
        const float mean = centered ? mean_of(in) : 0.0F;
        const float rstd =
            1.0F / std::sqrt(mean_square(in, mean) + static_cast<float>(run.call.epsilon));
        for (std::int64_t i = 0; i < n; ++i) {
          const float normalized = (to_float(in[i]) - mean) * rstd;
          const float shift = bias != nullptr ? to_float(bias[i]) : 0.0F;
          out[i] = from_float<T>(normalized * to_float(weight[i]) + shift);
        }
        if (means != nullptr) means[row] = mean;
        rstds[row] = rstd;
      }
    });
  }

  // With g = d_y weight and z the normalized x:
  //   d_x = rstd (g - z mean(g z) - [layer norm] mean(g))
  void backward() const {
    T* d_x = run.at<T>(0);
    const std::size_t first = centered ? 3 : 2;
    const T* d_y = run.at<T>(first);
    const T* x = run.at<T>(first + 1);
    const float* means = centered ? run.at<float>(first + 2) : nullptr;
    const float* rstds = run.at<float>(first + (centered ? 3 : 2));
    const T* weight = run.at<T>(first + (centered ? 4 : 3));
    weight_gradients(d_y, x, means, rstds);
    const std::int64_t n = columns();
    run.pool.run_ranges(rows(), kNormRows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* in = x + row * n;
        const T* d = d_y + row * n;
        T* out = d_x + row * n;
        const float mean = means != nullptr ? means[row] : 0.0F;
        const float rstd = rstds[row];
        double sum = 0.0;
        double product = 0.0;
        for (std::int64_t i = 0; i < n; ++i) {
          const float g = to_float(d[i]) * to_float(weight[i]);
          sum += static_cast<double>(g);
          product += static_cast<double>(g * (to_float(in[i]) - mean) * rstd);
        }
        const float mean_g = centered ? static_cast<float>(sum / static_cast<double>(n)) : 0.0F;
        const auto mean_gz = static_cast<float>(product / static_cast<double>(n));
        for (std::int64_t i = 0; i < n; ++i) {
          const float g = to_float(d[i]) * to_float(weight[i]);
          const float z = (to_float(in[i]) - mean) * rstd;
          const float before = run.call.accumulate ? to_float(out[i]) : 0.0F;
          out[i] = from_float<T>(before + rstd * (g - z * mean_gz - mean_g));
        }
      }
    });
  }

 private:
  float mean_of(const T* in) const {
    double sum = 0.0;
    for (std::int64_t i = 0; i < columns(); ++i) sum += static_cast<double>(to_float(in[i]));
    return static_cast<float>(sum / static_cast<double>(columns()));
  }
  float mean_square(const T* in, float mean) const {
    double sum = 0.0;
    for (std::int64_t i = 0; i < columns(); ++i) {
      const double centered_x = static_cast<double>(to_float(in[i]) - mean);
      sum += centered_x * centered_x;
    }
    return static_cast<float>(sum / static_cast<double>(columns()));
  }

  void weight_gradients(const T* d_y, const T* x, const float* means, const float* rstds) const {
    T* d_weight = run.at<T>(1);
    T* d_bias = centered ? run.at<T>(2) : nullptr;
    const std::int64_t n = columns();
    run.pool.run_ranges(n, kColumns, [&](std::int64_t begin, std::int64_t end) {
      std::array<double, kColumns> weight_sum{};
      std::array<double, kColumns> bias_sum{};
      for (std::int64_t row = 0; row < rows(); ++row) {
        const float mean = means != nullptr ? means[row] : 0.0F;
        for (std::int64_t i = begin; i < end; ++i) {
          const float d = to_float(d_y[row * n + i]);
          const float z = (to_float(x[row * n + i]) - mean) * rstds[row];
          weight_sum[static_cast<std::size_t>(i - begin)] += static_cast<double>(d * z);
          bias_sum[static_cast<std::size_t>(i - begin)] += static_cast<double>(d);
        }
      }
      for (std::int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<std::size_t>(i - begin);
        d_weight[i] = from_float<T>(static_cast<float>(weight_sum[at]));
        if (d_bias != nullptr) d_bias[i] = from_float<T>(static_cast<float>(bias_sum[at]));
      }
    });
  }
};

}  // namespace

template <typename T>
void run_norm(const Run& run) {
  const Kernel kernel = run.call.kernel;
  const bool centered =
      kernel == Kernel::layer_norm_forward || kernel == Kernel::layer_norm_backward;
  const Norm<T> norm{run, centered};
  if (kernel == Kernel::rms_norm_forward || kernel == Kernel::layer_norm_forward) {
    norm.forward();
  } else {
    norm.backward();
  }
}

ZP_CPU_KERNELS(run_norm);

}  // namespace zeroplan::runtime::cpu
