#include "evidence/calibrate/least_squares.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace zeroplan::evidence {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;
using Index = Eigen::Index;
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

std::span<const double> view(const VectorXd& v) {
  return {v.data(), static_cast<std::size_t>(v.size())};
}
std::span<double> view(VectorXd& v) { return {v.data(), static_cast<std::size_t>(v.size())}; }

double loss_of(double r, const LeastSquaresOptions& options) {
  const double s = options.loss_scale;
  switch (options.loss) {
    case Loss::squares:
      break;
    case Loss::huber:
      if (std::abs(r) > s) return 2.0 * s * std::abs(r) - s * s;
      break;
    case Loss::soft_l1:
      return 2.0 * s * s * (std::sqrt(1.0 + (r / s) * (r / s)) - 1.0);
  }
  return r * r;
}

// rho'(r) / (2 r): the weight with which squares have the same slope.
double weight_of(double r, const LeastSquaresOptions& options) {
  const double s = options.loss_scale;
  switch (options.loss) {
    case Loss::squares:
      return 1.0;
    case Loss::huber:
      return std::abs(r) <= s ? 1.0 : s / std::abs(r);
    case Loss::soft_l1:
      return 1.0 / std::sqrt(1.0 + (r / s) * (r / s));
  }
  return 1.0;
}

// One point, with what is known there.
struct Point {
  VectorXd x;
  VectorXd r;
  double cost = 0.0;
};

class Fitter {
 public:
  Fitter(const LeastSquaresProblem& problem, const LeastSquaresOptions& options)
      : problem_(problem),
        options_(options),
        n_(static_cast<Index>(problem.parameters.size())),
        m_(static_cast<Index>(problem.residuals)) {
    for (const FitParameter& p : problem.parameters) {
      ZP_CHECK(p.low <= p.start && p.start <= p.high, "a fit that starts outside its bounds");
      ZP_CHECK(p.prior_sd > 0.0, "a prior without a width");
      ZP_CHECK(!options.estimates_noise || std::isinf(p.prior_sd),
               "a prior beside noise of unknown size");
    }
  }

  LeastSquaresFit run() {
    VectorXd start(n_);
    for (Index k = 0; k < n_; ++k) start[k] = parameter(k).start;
    point_ = at(start);
    ZP_CHECK(std::isfinite(point_.cost), "a fit whose start cannot be evaluated");
    while (iterations_ < options_.max_iterations && !converged_) {
      ++iterations_;
      step();
    }
    return judged();
  }

  LeastSquaresFit judge(std::span<const double> x) {
    point_ = at(Eigen::Map<const VectorXd>(x.data(), n_));
    return judged();
  }

 private:
  const FitParameter& parameter(Index k) const {
    return problem_.parameters[static_cast<std::size_t>(k)];
  }

  Point at(const VectorXd& x) const {
    Point point{x, VectorXd(m_), 0.0};
    problem_.evaluate(view(point.x), view(point.r));
    for (Index i = 0; i < m_; ++i) point.cost += loss_of(point.r[i], options_);
    for (Index k = 0; k < n_; ++k) point.cost += std::pow(prior_residual(x, k), 2.0);
    if (!std::isfinite(point.cost)) point.cost = std::numeric_limits<double>::infinity();
    return point;
  }

  double prior_residual(const VectorXd& x, Index k) const {
    const FitParameter& p = parameter(k);
    return std::isinf(p.prior_sd) ? 0.0 : (x[k] - p.prior) / p.prior_sd;
  }

  MatrixXd jacobian() const {
    if (problem_.jacobian) {
      RowMajor rows(m_, n_);
      problem_.jacobian(
          view(point_.x), view(point_.r), {rows.data(), static_cast<std::size_t>(rows.size())});
      return rows;
    }
    MatrixXd columns(m_, n_);
    for (Index k = 0; k < n_; ++k) columns.col(k) = difference(k);
    return columns;
  }

  // Central, or one-sided at a bound. The step balances rounding and curvature.
  VectorXd difference(Index k) const {
    const double x = point_.x[k];
    const double least = std::isinf(parameter(k).prior_sd) ? 1e-8 : 1e-3 * parameter(k).prior_sd;
    const double h = std::cbrt(std::numeric_limits<double>::epsilon()) *
                     std::max(std::abs(x), x == 0.0 ? 1.0 : least);
    VectorXd above = point_.x, below = point_.x;
    above[k] = std::min(x + h, parameter(k).high);
    below[k] = std::max(x - h, parameter(k).low);
    const double width = above[k] - below[k];
    if (width <= 0.0) return VectorXd::Zero(m_);
    VectorXd high(m_), low(m_);
    problem_.evaluate(view(above), view(high));
    problem_.evaluate(view(below), view(low));
    return (high - low) / width;
  }

  // Residuals and Jacobian with the square roots of the robust weights, priors below them.
  void linearise() {
    const MatrixXd data = jacobian();
    weighted_ = MatrixXd::Zero(m_ + n_, n_);
    target_ = VectorXd::Zero(m_ + n_);
    for (Index i = 0; i < m_; ++i) {
      const double root = std::sqrt(weight_of(point_.r[i], options_));
      weighted_.row(i) = root * data.row(i);
      target_[i] = root * point_.r[i];
    }
    for (Index k = 0; k < n_; ++k) {
      if (std::isinf(parameter(k).prior_sd)) continue;
      weighted_(m_ + k, k) = 1.0 / parameter(k).prior_sd;
      target_[m_ + k] = prior_residual(point_.x, k);
    }
  }

  // Parameters that may move: all but those at a bound that the slope presses against.
  std::vector<Index> free_parameters(const VectorXd& slope) const {
    std::vector<Index> free;
    for (Index k = 0; k < n_; ++k) {
      const FitParameter& p = parameter(k);
      const bool held = (point_.x[k] <= p.low && slope[k] > 0.0) ||
                        (point_.x[k] >= p.high && slope[k] < 0.0) || p.low == p.high;
      if (!held) free.push_back(k);
    }
    return free;
  }

  // min |J p + r|^2 + damping |D p|^2 over the free parameters, by QR of the two stacked.
  VectorXd damped_step(const std::vector<Index>& free) const {
    const auto count = static_cast<Index>(free.size());
    MatrixXd stacked = MatrixXd::Zero(m_ + n_ + count, count);
    VectorXd right = VectorXd::Zero(m_ + n_ + count);
    right.head(m_ + n_) = -target_;
    for (Index j = 0; j < count; ++j) {
      const Index k = free[static_cast<std::size_t>(j)];
      stacked.col(j).head(m_ + n_) = weighted_.col(k);
      stacked(m_ + n_ + j, j) = std::sqrt(damping_) * scale_[k];
    }
    const VectorXd solved = stacked.householderQr().solve(right);
    VectorXd full = VectorXd::Zero(n_);
    for (Index j = 0; j < count; ++j) full[free[static_cast<std::size_t>(j)]] = solved[j];
    return full;
  }

  VectorXd projected(const VectorXd& x) const {
    VectorXd inside = x;
    for (Index k = 0; k < n_; ++k) {
      inside[k] = std::clamp(x[k], parameter(k).low, parameter(k).high);
    }
    return inside;
  }

  void update_scale() {
    if (scale_.size() == 0) scale_ = VectorXd::Zero(n_);
    for (Index k = 0; k < n_; ++k) scale_[k] = std::max(scale_[k], weighted_.col(k).norm());
    for (Index k = 0; k < n_; ++k) {
      if (scale_[k] == 0.0) scale_[k] = 1.0;
    }
  }

  // One linearisation, with more damping until a step makes the cost smaller.
  void step() {
    linearise();
    update_scale();
    const VectorXd slope = weighted_.transpose() * target_;
    const std::vector<Index> free = free_parameters(slope);
    constexpr double kMostDamping = 1e20;
    for (double growth = 2.0; !free.empty() && damping_ < kMostDamping; growth *= 2.0) {
      const VectorXd wanted = damped_step(free);
      const VectorXd moved = projected(point_.x + wanted);
      const VectorXd change = moved - point_.x;
      if (is_small(change)) break;
      Point next = at(moved);
      const VectorXd linear = target_ + weighted_ * change;
      const double expected = target_.squaredNorm() - linear.squaredNorm();
      const double gained = point_.cost - next.cost;
      if (gained > 0.0) {
        const double ratio = expected > 0.0 ? gained / expected : 0.0;
        damping_ *= std::clamp(1.0 - std::pow(2.0 * ratio - 1.0, 3.0), 1.0 / 3.0, 2.0);
        const bool done = gained <= options_.tolerance * point_.cost && is_nearly_small(change);
        point_ = std::move(next);
        converged_ = done;
        return;
      }
      damping_ *= growth;
    }
    converged_ = true;  // no step makes it smaller
  }

  bool is_small(const VectorXd& change) const {
    for (Index k = 0; k < n_; ++k) {
      if (std::abs(change[k]) > options_.tolerance * 1e-2 * (std::abs(point_.x[k]) + 1e-300)) {
        return false;
      }
    }
    return true;
  }
  bool is_nearly_small(const VectorXd& change) const {
    const double most = std::sqrt(options_.tolerance);
    for (Index k = 0; k < n_; ++k) {
      if (std::abs(change[k]) > most * (std::abs(point_.x[k]) + most)) return false;
    }
    return true;
  }

  LeastSquaresFit judged() {
    linearise();
    LeastSquaresFit fit;
    fit.x.assign(point_.x.data(), point_.x.data() + n_);
    fit.residuals.assign(point_.r.data(), point_.r.data() + m_);
    double squares = 0.0;
    for (const double r : fit.residuals) {
      fit.weights.push_back(weight_of(r, options_));
      squares += fit.weights.back() * r * r;
    }
    for (Index k = 0; k < n_; ++k) {
      fit.at_bound.push_back(point_.x[k] <= parameter(k).low || point_.x[k] >= parameter(k).high);
    }
    fit.cost = point_.cost;
    fit.iterations = iterations_;
    fit.converged = converged_;
    take_spread(squares, fit);
    return fit;
  }

  // Columns in units of the prior, or of their own length: what is small beside 1 (or beside the
  // largest) the data do not tell.
  VectorXd unit_of_columns() const {
    VectorXd unit(n_);
    for (Index k = 0; k < n_; ++k) {
      const double length = weighted_.col(k).head(m_).norm();
      const double sd = parameter(k).prior_sd;
      unit[k] = std::isinf(sd) ? (length > 0.0 ? 1.0 / length : 1.0) : sd;
    }
    return unit;
  }

  // Covariance U V (S^2 + prior)^-1 V^T U. Directions without data and prior get no variance here:
  // parameters in them are infinitely uncertain.
  void take_spread(double squares, LeastSquaresFit& fit) const {
    if (n_ == 0) {
      fit.residual_sd = m_ > 0 ? std::sqrt(squares / static_cast<double>(m_)) : 0.0;
      return;
    }
    const VectorXd unit = unit_of_columns();
    const MatrixXd data = weighted_.topRows(m_) * unit.asDiagonal();
    const VectorXd of_data = m_ > 0 ? VectorXd(data.jacobiSvd().singularValues()) : VectorXd();
    fit.singular_values.assign(of_data.data(), of_data.data() + of_data.size());
    const double rounding = static_cast<double>(std::max(m_, n_)) * 1e-14;
    for (const double s : fit.singular_values) {
      fit.rank += s > rounding * fit.singular_values.front() && s > 0.0 ? 1 : 0;
    }
    const double freedom = static_cast<double>(m_) - static_cast<double>(fit.rank);
    fit.residual_sd = freedom > 0.0 ? std::sqrt(squares / freedom) : 0.0;

    const MatrixXd all = weighted_ * unit.asDiagonal();
    const Eigen::JacobiSVD<MatrixXd> svd(all, Eigen::ComputeThinV);
    const VectorXd& s = svd.singularValues();
    MatrixXd covariance = MatrixXd::Zero(n_, n_);
    VectorXd unknown = VectorXd::Zero(n_);
    for (Index j = 0; j < s.size(); ++j) {
      const VectorXd direction = svd.matrixV().col(j);
      if (s[j] > rounding * s[0] && s[j] > 0.0) {
        covariance += direction * direction.transpose() / (s[j] * s[j]);
      } else {
        unknown += direction.cwiseAbs2();
      }
    }
    const double noise = options_.estimates_noise ? fit.residual_sd : 1.0;
    covariance = noise * noise * (unit.asDiagonal() * covariance * unit.asDiagonal());
    take_errors(covariance, unknown, fit);
  }

  void take_errors(const MatrixXd& covariance,
                   const VectorXd& unknown,
                   LeastSquaresFit& fit) const {
    constexpr double kShare = 1e-6;  // of a direction nobody knows
    for (Index k = 0; k < n_; ++k) {
      const double sd = parameter(k).prior_sd;
      const bool lost = unknown[k] > kShare;
      const double variance = covariance(k, k);
      fit.standard_errors.push_back(lost ? std::numeric_limits<double>::infinity()
                                         : std::sqrt(variance));
      const double of_prior = std::isinf(sd) ? 0.0 : variance / (sd * sd);
      fit.determined.push_back(lost ? 0.0 : std::clamp(1.0 - of_prior, 0.0, 1.0));
    }
    for (Index i = 0; i < n_; ++i) {
      for (Index j = 0; j < n_; ++j) {
        const double both = std::sqrt(covariance(i, i) * covariance(j, j));
        fit.correlations.push_back(i == j ? 1.0 : both > 0.0 ? covariance(i, j) / both : 0.0);
      }
    }
  }

  const LeastSquaresProblem& problem_;
  const LeastSquaresOptions& options_;
  const Index n_, m_;
  Point point_;
  MatrixXd weighted_;
  VectorXd target_, scale_;
  double damping_ = 1e-3;
  int iterations_ = 0;
  bool converged_ = false;
};

}  // namespace

LeastSquaresFit least_squares(const LeastSquaresProblem& problem,
                              const LeastSquaresOptions& options) {
  return Fitter(problem, options).run();
}

LeastSquaresFit judge_at(const LeastSquaresProblem& problem,
                         std::span<const double> x,
                         const LeastSquaresOptions& options) {
  return Fitter(problem, options).judge(x);
}

}  // namespace zeroplan::evidence
