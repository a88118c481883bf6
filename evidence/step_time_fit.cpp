#include "evidence/step_time_fit.hpp"

#include <algorithm>
#include <cmath>

#include "model/check.hpp"
#include "model/predict/step_work.hpp"

namespace zeroplan {
namespace {

constexpr double kRowSpread = 0.04;  // of a measured row around a perfect model
constexpr double kHuber = 1.5;       // residuals beyond so many spreads count linearly
constexpr double kDifference = 0.02;
constexpr double kLeastPriorSpread = 0.02;
constexpr int kIterations = 5;

Coefficients moved(const MeasuredStep& step,
                   const std::vector<FittedCoefficient>& coefficients,
                   const std::vector<double>& values) {
  Coefficients set = step.plan.coefficients;
  for (std::size_t k = 0; k < coefficients.size(); ++k) {
    if (!step.plan.cluster.gpu.key.starts_with(coefficients[k].gpu_key_prefix)) continue;
    set.set(coefficients[k].id, values[k]);
  }
  return set;
}

double log_ratio(const MeasuredStep& step, const Coefficients& set) {
  Plan plan = step.plan;
  plan.coefficients = set;
  return std::log(step_time(plan, step.graph, step.traffic).tokens_per_second_per_gpu /
                  step.tokens_per_second_per_gpu);
}

// Solves A x = b for a small symmetric positive A (Cholesky, in place).
std::vector<double> solve(std::vector<std::vector<double>> a, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = a[i][j];
      for (std::size_t k = 0; k < j; ++k) sum -= a[i][k] * a[j][k];
      if (i == j) {
        ZP_CHECK(sum > 0.0, "a fit without a minimum");
        a[i][i] = std::sqrt(sum);
      } else {
        a[i][j] = sum / a[j][j];
      }
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

// One Gauss-Newton step in the logarithms of the coefficients.
class Problem {
 public:
  Problem(const std::vector<MeasuredStep>& steps,
          const std::vector<FittedCoefficient>& coefficients,
          std::string_view left_out)
      : coefficients_(coefficients) {
    for (const MeasuredStep& step : steps) {
      if (left_out.empty() || step.group != left_out) steps_.push_back(&step);
    }
    prior_ = table_values(steps, coefficients).values;
    for (const FittedCoefficient& c : coefficients) {
      double spread = info(c.id).relative_sd;
      for (const MeasuredStep& step : steps) {
        if (!step.plan.cluster.gpu.key.starts_with(c.gpu_key_prefix)) continue;
        spread = step.plan.coefficients.relative_sd(c.id);
        break;
      }
      spread_.push_back(std::max(kLeastPriorSpread, spread));
    }
  }

  std::vector<double> minimum() const {
    std::vector<double> values = prior_;
    for (int i = 0; i < kIterations; ++i) improve(values);
    return values;
  }

 private:
  void improve(std::vector<double>& values) const {
    const std::size_t n = values.size();
    std::vector<std::vector<double>> normal(n, std::vector<double>(n, 0.0));
    std::vector<double> right(n, 0.0);
    for (const MeasuredStep* step : steps_) {
      const double residual = log_ratio(*step, moved(*step, coefficients_, values));
      const double size = std::abs(residual) / kRowSpread;
      const double weight = (size <= kHuber ? 1.0 : kHuber / size) / (kRowSpread * kRowSpread);
      const std::vector<double> slope = slopes(*step, values, residual);
      for (std::size_t i = 0; i < n; ++i) {
        right[i] -= weight * slope[i] * residual;
        for (std::size_t j = 0; j < n; ++j) normal[i][j] += weight * slope[i] * slope[j];
      }
    }
    for (std::size_t k = 0; k < n; ++k) {
      const double weight = 1.0 / (spread_[k] * spread_[k]);
      normal[k][k] += weight;
      right[k] -= weight * std::log(values[k] / prior_[k]);
    }
    const std::vector<double> change = solve(normal, right);
    for (std::size_t k = 0; k < n; ++k) {
      const CoefficientInfo& row = info(coefficients_[k].id);
      values[k] = std::clamp(values[k] * std::exp(std::clamp(change[k], -0.7, 0.7)),
                             std::max(row.low, 1e-12),
                             row.high);
    }
  }

  std::vector<double> slopes(const MeasuredStep& step,
                             const std::vector<double>& values,
                             double residual) const {
    std::vector<double> slope(values.size(), 0.0);
    for (std::size_t k = 0; k < values.size(); ++k) {
      if (!step.plan.cluster.gpu.key.starts_with(coefficients_[k].gpu_key_prefix)) continue;
      std::vector<double> other = values;
      other[k] *= std::exp(kDifference);
      slope[k] = (log_ratio(step, moved(step, coefficients_, other)) - residual) / kDifference;
    }
    return slope;
  }

  const std::vector<FittedCoefficient>& coefficients_;
  std::vector<const MeasuredStep*> steps_;
  std::vector<double> prior_, spread_;
};

}  // namespace

MeasuredStep measured_step(const std::string& id,
                           const std::string& group,
                           const Json& scenario,
                           double tokens_per_second_per_gpu) {
  MeasuredStep step;
  step.id = id;
  step.group = group;
  step.plan = resolve(parse_scenario(scenario, id));
  StepWork work = step_work(step.plan);
  step.traffic = step_traffic(step.plan, work);
  step.graph = std::move(work.graph);
  step.tokens_per_second_per_gpu = tokens_per_second_per_gpu;
  return step;
}

double speed_error(const MeasuredStep& step,
                   const std::vector<FittedCoefficient>& coefficients,
                   const StepTimeFit& fit) {
  return std::exp(log_ratio(step, moved(step, coefficients, fit.values))) - 1.0;
}

StepTimeFit table_values(const std::vector<MeasuredStep>& steps,
                         const std::vector<FittedCoefficient>& coefficients) {
  StepTimeFit fit;
  for (const FittedCoefficient& c : coefficients) {
    double value = info(c.id).value;
    for (const MeasuredStep& step : steps) {
      if (!step.plan.cluster.gpu.key.starts_with(c.gpu_key_prefix)) continue;
      value = step.plan.coefficients[c.id];
      break;
    }
    fit.values.push_back(value);
  }
  return fit;
}

StepTimeFit fit_step_times(const std::vector<MeasuredStep>& steps,
                           const std::vector<FittedCoefficient>& coefficients,
                           std::string_view left_out) {
  return {Problem(steps, coefficients, left_out).minimum()};
}

}  // namespace zeroplan
