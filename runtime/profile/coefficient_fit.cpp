#include "runtime/profile/coefficient_fit.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "runtime/profile/spread.hpp"

namespace zeroplan::runtime {
namespace {

constexpr double kRowSd = 0.05;
constexpr double kPriorWidth = 3.0;
constexpr double kHuber =
    1.345;  // Huber 1981: 95 % as good as least squares where errors are normal

using Vector = Eigen::VectorXd;
using Matrix = Eigen::MatrixXd;

// Unknowns are in units of their prior.
class Problem {
 public:
  Problem(const Coefficients& prior,
          std::span<const Coefficient> free,
          const std::vector<FitRow>& rows)
      : prior_(prior), free_(free.begin(), free.end()), rows_(rows), sd_(size()) {
    low_ = high_ = sd_;
    for (Eigen::Index i = 0; i < size(); ++i) {
      const CoefficientInfo& row = info(id(i));
      const double value = prior[id(i)];
      ZP_CHECK(value != 0.0, "an unknown is measured in units of its prior");
      low_[i] = row.low / value;
      high_[i] = row.high / value;
      // A row that claims to be certain would not move at all.
      sd_[i] = kPriorWidth * std::max(0.01, prior.relative_sd(id(i)));
    }
  }

  Eigen::Index size() const { return static_cast<Eigen::Index>(free_.size()); }
  Coefficient id(Eigen::Index i) const { return free_[static_cast<std::size_t>(i)]; }
  double prior_sd(Eigen::Index i) const { return sd_[i]; }

  Coefficients at(const Vector& x) const {
    Coefficients values = prior_;
    for (Eigen::Index i = 0; i < size(); ++i) values.set(id(i), prior_[id(i)] * x[i]);
    return values;
  }
  Vector clamped(const Vector& x) const { return x.cwiseMax(low_).cwiseMin(high_); }

  // Logarithms of t / m, in units of s.
  Vector residuals(const Vector& x) const {
    const Coefficients values = at(x);
    Vector result(static_cast<Eigen::Index>(rows_.size()));
    for (Eigen::Index i = 0; i < result.size(); ++i) {
      const FitRow& row = rows_[static_cast<std::size_t>(i)];
      result[i] = std::log(std::max(row.seconds(values), 1e-12) / row.measured) / kRowSd;
    }
    return result;
  }
  double objective(const Vector& x) const {
    double sum = 0.0;
    for (const double r : residuals(x)) {
      const double size = std::abs(r);
      sum += size <= kHuber ? r * r : kHuber * (2.0 * size - kHuber);
    }
    return sum + ((x.array() - 1.0) / sd_.array()).square().sum();
  }
  // By differences, away from a bound that is met.
  Matrix slopes(const Vector& x, const Vector& here) const {
    constexpr double kStep = 1e-4;
    Matrix result(here.size(), size());
    for (Eigen::Index i = 0; i < size(); ++i) {
      Vector moved = x;
      const double step = x[i] + kStep <= high_[i] ? kStep : -kStep;
      moved[i] += step;
      result.col(i) = (residuals(moved) - here) / step;
    }
    return result;
  }
  // J^T W J + 1 / d^2 and its gradient, W Huber's weights.
  void normal_equations(const Vector& x, Matrix& left, Vector& right) const {
    const Vector here = residuals(x);
    const Matrix j = slopes(x, here);
    const Vector weights =
        here.unaryExpr([](double r) { return std::abs(r) <= kHuber ? 1.0 : kHuber / std::abs(r); });
    left = j.transpose() * weights.asDiagonal() * j;
    left.diagonal() += sd_.array().square().inverse().matrix();
    right = j.transpose() * (weights.asDiagonal() * here);
    right += ((x.array() - 1.0) / sd_.array().square()).matrix();
  }

 private:
  const Coefficients& prior_;
  std::vector<Coefficient> free_;
  const std::vector<FitRow>& rows_;
  Vector sd_, low_, high_;
};

Vector minimum(const Problem& problem) {
  Vector x = problem.clamped(Vector::Ones(problem.size()));
  double now = problem.objective(x);
  double damping = 1e-2;
  constexpr int kMostSteps = 200;
  for (int step = 0; step < kMostSteps && damping < 1e8; ++step) {
    Matrix left;
    Vector right;
    problem.normal_equations(x, left, right);
    Matrix damped = left;
    damped.diagonal() += damping * left.diagonal();
    const Vector next = problem.clamped(x - damped.ldlt().solve(right));
    const double then = problem.objective(next);
    if (!(then < now)) {
      damping *= 4.0;
      continue;
    }
    const bool done = now - then < 1e-10 * (1.0 + now);
    x = next;
    now = then;
    damping = std::max(1e-9, damping / 4.0);
    if (done) break;
  }
  return x;
}

}  // namespace

CoefficientFit fit_coefficients(const Coefficients& prior,
                                std::span<const Coefficient> free,
                                const std::vector<FitRow>& rows) {
  ZP_CHECK(!rows.empty() && !free.empty(), "a fit of something to something");
  const Problem problem(prior, free, rows);
  const Vector x = minimum(problem);
  Matrix left;
  Vector right;
  problem.normal_equations(x, left, right);
  const Matrix covariance = left.inverse();

  CoefficientFit fit;
  fit.coefficients = prior;
  for (Eigen::Index i = 0; i < problem.size(); ++i) {
    const double variance = covariance(i, i);
    const double sd_of_prior = problem.prior_sd(i);
    FittedCoefficient found;
    found.id = problem.id(i);
    found.value = prior[found.id] * x[i];
    found.relative_sd = std::sqrt(variance) / std::max(std::abs(x[i]), 1e-6);
    found.informed = variance < 0.9 * sd_of_prior * sd_of_prior;
    if (found.informed) fit.coefficients.set(found.id, found.value, found.relative_sd);
    fit.found.push_back(found);
  }
  std::vector<double> errors;
  for (const FitRow& row : rows) {
    errors.push_back(std::abs(row.seconds(fit.coefficients) / row.measured - 1.0));
  }
  fit.largest_error = *std::max_element(errors.begin(), errors.end());
  fit.median_error = spread_of(std::move(errors), 0).median;
  return fit;
}

}  // namespace zeroplan::runtime
