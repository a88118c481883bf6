#include "tests/published/step_time_fit.hpp"

#include <algorithm>
#include <cmath>

#include "evidence/calibrate/least_squares.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/plan/software_sets.hpp"
#include "model/predict/step_work.hpp"

namespace zeroplan {
namespace {

constexpr double kRowSpread = 0.04;  // of a measured row around a perfect model
constexpr double kHuber = 1.5;       // residuals beyond so many spreads count linearly
constexpr double kDifference = 0.02;
constexpr double kLeastPriorSpread = 0.02;
constexpr double kLeastValue = 1e-12;  // where a bound is 0
constexpr int kIterations = 20;

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

// The rows and coefficients of one fit, as the solver of `calibrate` takes them.
class Problem {
 public:
  Problem(const std::vector<MeasuredStep>& steps,
          const std::vector<FittedCoefficient>& coefficients,
          std::string_view left_out)
      : coefficients_(coefficients) {
    for (const MeasuredStep& step : steps) {
      if (left_out.empty() || step.group != left_out) steps_.push_back(&step);
    }
    const std::vector<double> prior = table_values(steps, coefficients).values;
    for (std::size_t k = 0; k < coefficients.size(); ++k) {
      const CoefficientInfo& row = info(coefficients[k].id);
      double spread = row.relative_sd;
      for (const MeasuredStep& step : steps) {
        if (!step.plan.cluster.gpu.key.starts_with(coefficients[k].gpu_key_prefix)) continue;
        spread = step.plan.coefficients.relative_sd(coefficients[k].id);
        break;
      }
      const double start = std::log(prior[k]);
      problem_.parameters.push_back({std::string(row.name),
                                     start,
                                     std::min(start, std::log(std::max(row.low, kLeastValue))),
                                     std::max(start, std::log(row.high)),
                                     start,
                                     std::max(kLeastPriorSpread, spread)});
    }
    problem_.residuals = steps_.size();
    problem_.evaluate = [this](std::span<const double> x, std::span<double> r) {
      const std::vector<double> values = exponentials(x);
      for (std::size_t i = 0; i < r.size(); ++i) {
        r[i] = log_ratio(*steps_[i], moved(*steps_[i], coefficients_, values)) / kRowSpread;
      }
    };
    problem_.jacobian = [this](std::span<const double> x,
                               std::span<const double> r,
                               std::span<double> jacobian) { slopes(x, r, jacobian); };
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  std::vector<double> minimum() const {
    evidence::LeastSquaresOptions options;
    options.loss = evidence::Loss::huber;
    options.loss_scale = kHuber;
    options.max_iterations = kIterations;
    options.tolerance = 1e-6;
    return exponentials(evidence::least_squares(problem_, options).x);
  }

 private:
  static std::vector<double> exponentials(std::span<const double> x) {
    std::vector<double> values;
    for (const double logarithm : x) values.push_back(std::exp(logarithm));
    return values;
  }

  void slopes(std::span<const double> x,
              std::span<const double> r,
              std::span<double> jacobian) const {
    const std::vector<double> values = exponentials(x);
    for (std::size_t i = 0; i < r.size(); ++i) {
      const MeasuredStep& step = *steps_[i];
      for (std::size_t k = 0; k < values.size(); ++k) {
        double& slope = jacobian[i * values.size() + k] = 0.0;
        if (!step.plan.cluster.gpu.key.starts_with(coefficients_[k].gpu_key_prefix)) continue;
        std::vector<double> other = values;
        other[k] *= std::exp(kDifference);
        const double there = log_ratio(step, moved(step, coefficients_, other)) / kRowSpread;
        slope = (there - r[i]) / kDifference;
      }
    }
  }

  const std::vector<FittedCoefficient>& coefficients_;
  std::vector<const MeasuredStep*> steps_;
  evidence::LeastSquaresProblem problem_;
};

}  // namespace

MeasuredStep measured_step(const std::string& id,
                           const std::string& group,
                           const Json& scenario,
                           double tokens_per_second_per_gpu) {
  MeasuredStep step;
  step.id = id;
  step.group = group;
  step.plan = resolve(with_reported_software(parse_scenario(scenario, id)));
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
