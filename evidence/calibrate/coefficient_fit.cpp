#include "evidence/calibrate/coefficient_fit.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/parallel_for.hpp"
#include "evidence/calibrate/least_squares.hpp"
#include "model/predict/memory.hpp"

namespace zeroplan::evidence {
namespace {

constexpr double kLeastDetermined = 0.1;  // below: the coefficient stays at its prior
constexpr double kNoInfluence = 1e-4;     // change of log t by one prior sd that counts as none
constexpr double kDifference = 0.02;      // of log theta, for slopes
constexpr double kSharedErrors = 0.2;     // r of the design effect; assumed, .05 leaves out as well
constexpr double kEntangled = 0.9;
constexpr double kExpectedRows = 4.0;    // what the spread expected beforehand weighs
constexpr std::size_t kEnoughRows = 10;  // for a spread

// A row of the coefficient table that the data depend on.
struct Unknown {
  Coefficient id;
  std::string gpu;
  double prior = 0.0;  // log
  double sd = 0.0;
  double low = 0.0, high = 0.0;
};

// d log t_i / d log theta_k, where it is not nothing.
struct Slope {
  std::size_t unknown = 0;
  double value = 0.0;
};

bool is_memory_coefficient(Coefficient id) {
  const std::span<const Coefficient> all = memory_coefficients();
  return std::find(all.begin(), all.end(), id) != all.end();
}

class Fit {
 public:
  Fit(const std::vector<Observation>& rows, std::int64_t jobs) : rows_(rows), jobs_(jobs) {
    find_unknowns();
    set_spreads();
    measure_slopes(all_unknowns(), priors());
  }

  CoefficientFit run() {
    x_ = priors();
    before_ = logarithms(x_);
    const std::vector<std::vector<Slope>> at_prior = slopes_;
    select();
    fit();
    // How large errors are the data say themselves: with what is left the same again.
    // What was expected counts as a few rows.
    const double freedom = degrees_of_freedom();
    const double left = freedom * std::pow(residual_sd(), 2.0);
    const double noise = std::sqrt((kExpectedRows + left) / (kExpectedRows + freedom));
    for (double& spread : spread_) spread *= noise;
    slopes_ = at_prior;
    const std::vector<double> fitted = x_;
    select();
    for (const std::size_t k : active_) x_[k] = fitted[k];
    fit();
    leave_out();
    describe();
    return std::move(result_);
  }

 private:
  // --- what there is to fit

  void find_unknowns() {
    std::map<std::pair<Coefficient, std::string>, std::size_t> known;
    for (const Observation& row : rows_) {
      std::vector<std::size_t> of_row;
      const bool of_memory = row.kind == ObservationKind::memory;
      for (const CoefficientInfo& entry : coefficient_rows()) {
        const double sd = row.table.relative_sd(entry.id);
        const double value = row.table[entry.id];
        if (sd <= 0.0 || value <= 0.0 || is_memory_coefficient(entry.id) != of_memory) continue;
        const std::string gpu(row_for_gpu(entry.id, row.gpu));
        const auto [at, is_new] = known.emplace(std::pair(entry.id, gpu), unknowns_.size());
        if (is_new) {
          constexpr double kLeastShare = 1e-3;  // where the table's bound is 0
          unknowns_.push_back({entry.id,
                               gpu,
                               std::log(value),
                               sd,
                               std::log(std::max(entry.low, kLeastShare * value)),
                               std::log(entry.high)});
          Unknown& added = unknowns_.back();  // a GPU's row may lie outside
          added.low = std::min(added.low, added.prior);
          added.high = std::max(added.high, added.prior);
        }
        of_row.push_back(at->second);
      }
      of_row_.push_back(std::move(of_row));
    }
  }

  void set_spreads() {
    std::map<std::string, std::size_t> count;
    for (const Observation& row : rows_) ++count[row.origin];
    for (const Observation& row : rows_) {
      const double others = static_cast<double>(count[row.origin] - 1);
      const double shared = count.size() > 1 ? kSharedErrors * others : 0.0;
      spread_.push_back(row.sd * std::sqrt(1.0 + shared));
    }
  }

  std::vector<double> priors() const {
    std::vector<double> x;
    for (const Unknown& unknown : unknowns_) x.push_back(unknown.prior);
    return x;
  }
  std::vector<std::size_t> all_unknowns() const {
    std::vector<std::size_t> all(unknowns_.size());
    for (std::size_t k = 0; k < all.size(); ++k) all[k] = k;
    return all;
  }

  // The coefficients of a row's GPU under values of all unknowns.
  Coefficients moved(std::size_t i, const std::vector<double>& x) const {
    Coefficients set = rows_[i].table;
    for (const std::size_t k : of_row_[i]) {
      if (x[k] != unknowns_[k].prior) set.set(unknowns_[k].id, std::exp(x[k]));
    }
    return set;
  }

  // Does any unknown that the row depends on differ from its prior?
  bool moves(std::size_t i, const std::vector<double>& x) const {
    return std::any_of(slopes_[i].begin(), slopes_[i].end(), [&](const Slope& slope) {
      return x[slope.unknown] != unknowns_[slope.unknown].prior;
    });
  }

  // --- values and slopes

  std::vector<double> logarithms(const std::vector<double>& x) const {
    std::vector<double> result(rows_.size());
    parallel_for(rows_.size(), jobs_, [&](std::size_t i) {
      if (!before_.empty() && !moves(i, x)) {
        result[i] = before_[i];
        return;
      }
      result[i] = std::log(rows_[i].exact(moved(i, x)) / rows_[i].measured);
    });
    return result;
  }

  // Slopes at x for those of `wanted` that a row depends on; a slope that was nothing at the prior
  // is not asked for again.
  void measure_slopes(const std::vector<std::size_t>& wanted, const std::vector<double>& x) {
    const bool first = slopes_.empty();
    slopes_.resize(rows_.size());
    parallel_for(rows_.size(), jobs_, [&](std::size_t i) {
      std::vector<std::size_t> mine;
      if (first) {
        mine = of_row_[i];
      } else {
        for (const Slope& slope : slopes_[i]) {
          if (std::binary_search(wanted.begin(), wanted.end(), slope.unknown)) {
            mine.push_back(slope.unknown);
          }
        }
      }
      const Coefficients base = moved(i, x);
      const double center = std::log(rows_[i].quick(base));
      std::vector<Slope> found;
      for (const std::size_t k : mine) {
        // Away from a bound.
        const double step = x[k] + kDifference <= unknowns_[k].high ? kDifference : -kDifference;
        Coefficients other = base;
        other.set(unknowns_[k].id, std::exp(x[k] + step));
        const double slope = (std::log(rows_[i].quick(other)) - center) / step;
        if (!first || std::abs(slope) * unknowns_[k].sd > kNoInfluence) found.push_back({k, slope});
      }
      slopes_[i] = std::move(found);
    });
  }

  // The problem over some of the unknowns, the others at their values in x_.
  LeastSquaresProblem problem_over(const std::vector<std::size_t>& wanted) const {
    LeastSquaresProblem problem;
    for (const std::size_t k : wanted) {
      const Unknown& unknown = unknowns_[k];
      problem.parameters.push_back({std::string(info(unknown.id).name),
                                    x_[k],
                                    unknown.low,
                                    unknown.high,
                                    unknown.prior,
                                    unknown.sd});
    }
    problem.residuals = rows_.size();
    return problem;
  }

  void fill_jacobian(const std::vector<std::size_t>& wanted, std::span<double> jacobian) const {
    std::fill(jacobian.begin(), jacobian.end(), 0.0);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      for (const Slope& slope : slopes_[i]) {
        const auto at = std::lower_bound(wanted.begin(), wanted.end(), slope.unknown);
        if (at == wanted.end() || *at != slope.unknown) continue;
        const auto column = static_cast<std::size_t>(at - wanted.begin());
        jacobian[i * wanted.size() + column] = slope.value / spread_[i];
      }
    }
  }

  std::vector<double> with(const std::vector<std::size_t>& wanted,
                           std::span<const double> values) const {
    std::vector<double> x = x_;
    for (std::size_t j = 0; j < wanted.size(); ++j) x[wanted[j]] = values[j];
    return x;
  }

  static LeastSquaresOptions solver() {
    LeastSquaresOptions options;
    options.loss = Loss::huber;
    options.max_iterations = 30;
    options.tolerance = 1e-5;  // of the cost: far below what errors of the model leave
    return options;
  }

  // --- the steps

  // What the data can say of each unknown, at the prior.
  void select() {
    x_ = priors();
    active_.clear();
    result_.undetermined.clear();
    std::vector<std::size_t> touched;
    std::vector<std::size_t> count(unknowns_.size(), 0);
    for (const std::vector<Slope>& of_row : slopes_) {
      for (const Slope& slope : of_row) ++count[slope.unknown];
    }
    for (std::size_t k = 0; k < unknowns_.size(); ++k) {
      if (count[k] > 0) touched.push_back(k);
    }
    count_ = std::move(count);
    LeastSquaresProblem problem = problem_over(touched);
    problem.evaluate = [&](std::span<const double>, std::span<double> r) {
      for (std::size_t i = 0; i < r.size(); ++i) r[i] = before_[i] / spread_[i];
    };
    problem.jacobian = [&](std::span<const double>,
                           std::span<const double>,
                           std::span<double> jacobian) { fill_jacobian(touched, jacobian); };
    const LeastSquaresFit judged = judge_at(problem, with_only(touched), solver());
    for (std::size_t j = 0; j < touched.size(); ++j) {
      const Unknown& unknown = unknowns_[touched[j]];
      if (judged.determined[j] >= kLeastDetermined) {
        active_.push_back(touched[j]);
      } else {
        result_.undetermined.push_back(
            {unknown.id, unknown.gpu, judged.determined[j], count_[touched[j]]});
      }
    }
  }

  std::vector<double> with_only(const std::vector<std::size_t>& wanted) const {
    std::vector<double> values;
    for (const std::size_t k : wanted) values.push_back(x_[k]);
    return values;
  }

  void fit() {
    LeastSquaresProblem problem = problem_over(active_);
    problem.evaluate = [&](std::span<const double> values, std::span<double> r) {
      const std::vector<double> errors = logarithms(with(active_, values));
      for (std::size_t i = 0; i < r.size(); ++i) r[i] = errors[i] / spread_[i];
    };
    problem.jacobian =
        [&](std::span<const double> values, std::span<const double>, std::span<double> jacobian) {
          measure_slopes(active_, with(active_, values));
          fill_jacobian(active_, jacobian);
        };
    fit_ = least_squares(problem, solver());
    x_ = with(active_, fit_.x);
    after_.resize(rows_.size());
    for (std::size_t i = 0; i < rows_.size(); ++i) after_[i] = fit_.residuals[i] * spread_[i];
  }

  double degrees_of_freedom() const {
    return std::max(0.0, static_cast<double>(rows_.size()) - static_cast<double>(fit_.rank));
  }
  // Of the rows against the spread expected of each alone; what an origin's rows share counts too.
  double residual_sd() const {
    double squares = 0.0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      squares += fit_.weights[i] * std::pow(after_[i] / rows_[i].sd, 2.0);
    }
    const double freedom = degrees_of_freedom();
    return freedom > 0.0 ? std::sqrt(squares / freedom) : 0.0;
  }

  // Every origin predicted by the fit without its rows. The fit is linear around the whole one:
  // r + J (x - x^).
  void leave_out() {
    std::set<std::string> origins;
    for (const Observation& row : rows_) origins.insert(row.origin);
    if (origins.size() < 2) return;
    std::map<std::string, std::vector<double>> without;
    for (const std::string& origin : origins) without[origin] = fitted_without(origin);
    left_out_.resize(rows_.size());
    parallel_for(rows_.size(), jobs_, [&](std::size_t i) {
      const Coefficients set = moved(i, without.at(rows_[i].origin));
      left_out_[i] = std::log(rows_[i].exact(set) / rows_[i].measured);
    });
  }

  std::vector<double> fitted_without(const std::string& origin) const {
    std::vector<double> jacobian(rows_.size() * active_.size());
    fill_jacobian(active_, jacobian);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].origin != origin) continue;
      std::fill_n(
          jacobian.begin() + static_cast<std::ptrdiff_t>(i * active_.size()), active_.size(), 0.0);
    }
    LeastSquaresProblem problem = problem_over(active_);
    problem.evaluate = [&](std::span<const double> values, std::span<double> r) {
      for (std::size_t i = 0; i < r.size(); ++i) {
        r[i] = rows_[i].origin == origin ? 0.0 : fit_.residuals[i];
        for (std::size_t j = 0; j < values.size(); ++j) {
          r[i] += jacobian[i * values.size() + j] * (values[j] - fit_.x[j]);
        }
      }
    };
    problem.jacobian =
        [&](std::span<const double>, std::span<const double>, std::span<double> target) {
          std::copy(jacobian.begin(), jacobian.end(), target.begin());
        };
    return with(active_, least_squares(problem, solver()).x);
  }

  // --- the report

  void describe() {
    // Residuals larger than expected make everything less sure.
    const double larger = std::max(1.0, fit_.residual_sd);
    for (std::size_t j = 0; j < active_.size(); ++j) {
      const Unknown& unknown = unknowns_[active_[j]];
      FittedValue value;
      value.id = unknown.id;
      value.gpu = unknown.gpu;
      value.prior = std::exp(unknown.prior);
      value.prior_relative_sd = unknown.sd;
      value.value = std::exp(fit_.x[j]);
      value.relative_sd = std::min(fit_.standard_errors[j] * larger, unknown.sd);
      value.determined = fit_.determined[j];
      value.at_bound = fit_.at_bound[j];
      value.rows = count_[active_[j]];
      result_.fitted.push_back(std::move(value));
      for (std::size_t other = 0; other < j; ++other) {
        const double correlation = fit_.correlations[j * active_.size() + other];
        if (std::abs(correlation) < kEntangled) continue;
        result_.entangled.push_back({other, j, correlation});
      }
    }
    result_.rank = fit_.rank;
    result_.residual_sd = residual_sd();
    result_.iterations = fit_.iterations;
    result_.converged = fit_.converged;
    if (!fit_.singular_values.empty() && fit_.singular_values.back() > 0.0) {
      result_.condition = fit_.singular_values.front() / fit_.singular_values.back();
    }
    describe_rows();
    describe_deviations();
  }

  void describe_deviations() {
    const std::vector<double>& honest = left_out_.empty() ? after_ : left_out_;
    std::map<Coefficient, std::vector<double>> scores;
    std::map<std::string, std::vector<double>> gaps;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Observation& row = rows_[i];
      if (row.model_sd <= row.open_sd) continue;  // what is unspecified is the larger error
      if (row.deviation == Coefficient::reserved_gap_share) {
        // What the fit leaves of reserved memory is the gap's.
        const double left = row.measured * (1.0 - std::exp(after_[i]));
        gaps[row.origin].push_back(row.table[Coefficient::reserved_gap_share] +
                                   left / row.allocated);
      } else {
        scores[row.deviation].push_back(honest[i] / row.model_sd);
      }
    }
    for (const auto& [id, of_rows] : scores) {
      if (of_rows.size() < kEnoughRows) continue;
      const double before = rows_.front().table[id];
      result_.deviations.push_back({id, before * robust_spread(of_rows), 0.0, of_rows.size()});
    }
    const MeanOfOrigins gap = mean_of_origins(gaps);
    if (gap.rows < kEnoughRows || gap.mean <= 0.0) return;
    result_.deviations.push_back(
        {Coefficient::reserved_gap_share, gap.mean, gap.sd / gap.mean, gap.rows});
  }

  void describe_rows() {
    std::vector<RowErrors> errors;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Observation& row = rows_[i];
      errors.push_back({row.origin, before_[i], after_[i], left_out_.empty() ? 0.0 : left_out_[i]});
      const auto value = [&](double error) { return row.measured * std::exp(error); };
      result_.rows.push_back({row.id,
                              row.file,
                              row.source,
                              row.origin,
                              row.what,
                              row.gpu,
                              row.measured,
                              value(before_[i]),
                              value(after_[i]),
                              left_out_.empty() ? 0.0 : value(left_out_[i]),
                              fit_.weights[i]});
    }
    result_.errors = errors_by_origin(errors, !left_out_.empty());
  }

  const std::vector<Observation>& rows_;
  std::int64_t jobs_;
  std::vector<Unknown> unknowns_;
  std::vector<std::vector<std::size_t>> of_row_;  // unknowns that stand in a row's coefficients
  std::vector<std::vector<Slope>> slopes_;
  std::vector<double> spread_;
  std::vector<double> x_;  // logarithms of all unknowns
  std::vector<std::size_t> active_, count_;
  std::vector<double> before_, after_, left_out_;  // log predicted / measured
  LeastSquaresFit fit_;
  CoefficientFit result_;
};

}  // namespace

CoefficientFit fit_coefficients(const std::vector<Observation>& rows, std::int64_t jobs) {
  if (rows.empty()) return {};
  return Fit(rows, jobs).run();
}

}  // namespace zeroplan::evidence
