// The fitter beyond certified values (tests/published/nist_strd_test.cpp): bounds, priors,
// outliers, and what it says where the data do not determine a parameter.
#include "evidence/calibrate/least_squares.hpp"

#include <cmath>
#include <random>

#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

evidence::FitParameter parameter(double start,
                                 double prior_sd = std::numeric_limits<double>::infinity()) {
  evidence::FitParameter result;
  result.start = result.prior = start;
  result.prior_sd = prior_sd;
  return result;
}

// y = a + b x, with noise of sd 0.1 and every `outliers`-th point 5 too high.
evidence::LeastSquaresProblem line(int outliers) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0.0, 0.1);
  std::vector<double> y;
  for (int i = 0; i < 200; ++i) {
    y.push_back(2.0 - 0.5 * 0.05 * i + noise(random) +
                (outliers > 0 && i % outliers == 0 ? 5.0 : 0.0));
  }
  evidence::LeastSquaresProblem problem;
  problem.parameters = {parameter(0.0), parameter(0.0)};
  problem.residuals = y.size();
  problem.evaluate = [y](std::span<const double> x, std::span<double> r) {
    for (std::size_t i = 0; i < r.size(); ++i) {
      r[i] = (x[0] + x[1] * 0.05 * static_cast<double>(i) - y[i]) / 0.1;
    }
  };
  return problem;
}

}  // namespace

TEST_CASE("a fit finds a line within its standard errors") {
  const evidence::LeastSquaresFit fit = evidence::least_squares(line(0));
  CHECK(fit.converged);
  CHECK(fit.rank == 2);
  CHECK(std::abs(fit.x[0] - 2.0) < 3.0 * fit.standard_errors[0]);
  CHECK(std::abs(fit.x[1] + 0.5) < 3.0 * fit.standard_errors[1]);
  CHECK(fit.residual_sd == Approx(1.0).margin(0.15));
  CHECK(fit.correlations[1] < -0.8);  // level and slope trade off
  CHECK(fit.determined[0] == 1.0);
}

TEST_CASE("outliers hardly move a robust fit, and are told by their weights") {
  for (const evidence::Loss loss : {evidence::Loss::huber, evidence::Loss::soft_l1}) {
    evidence::LeastSquaresOptions options;
    options.loss = loss;
    const evidence::LeastSquaresProblem problem = line(10);
    const evidence::LeastSquaresFit robust = evidence::least_squares(problem, options);
    const evidence::LeastSquaresFit squares = evidence::least_squares(problem);
    CHECK(std::abs(robust.x[0] - 2.0) < 0.1);
    CHECK(std::abs(squares.x[0] - 2.0) > 0.4);
    CHECK(robust.weights[0] < 0.1);
    CHECK(robust.weights[1] > 0.5);
  }
}

TEST_CASE("a bound holds and the other parameters settle beside it") {
  evidence::LeastSquaresProblem problem = line(0);
  problem.parameters[0].high = 1.0;
  const evidence::LeastSquaresFit fit = evidence::least_squares(problem);
  CHECK(fit.x[0] == 1.0);
  CHECK(fit.at_bound[0]);
  CHECK_FALSE(fit.at_bound[1]);
  // Of the problem with a fixed level the slope has a closed form.
  std::vector<double> r(200);
  const double zero[] = {1.0, 0.0};
  problem.evaluate(zero, r);
  double top = 0.0, bottom = 0.0;
  for (std::size_t i = 0; i < r.size(); ++i) {
    const double x = 0.05 * static_cast<double>(i) / 0.1;
    top -= x * r[i];
    bottom += x * x;
  }
  CHECK(fit.x[1] == Approx(top / bottom).epsilon(1e-6));
}

TEST_CASE("priors decide where the data are silent, and the report says so") {
  evidence::LeastSquaresProblem problem = line(0);
  problem.parameters.push_back(parameter(3.0, 0.5));  // in no residual
  const evidence::LeastSquaresFit fit = evidence::least_squares(problem);
  CHECK(fit.x[2] == 3.0);
  CHECK(fit.standard_errors[2] == Approx(0.5));
  CHECK(fit.determined[2] == Approx(0.0).margin(1e-9));
  CHECK(fit.rank == 2);

  problem.parameters[2] = parameter(3.0);  // and without a prior
  const evidence::LeastSquaresFit lost = evidence::least_squares(problem);
  CHECK(lost.x[2] == 3.0);
  CHECK(std::isinf(lost.standard_errors[2]));
  CHECK(lost.determined[2] == 0.0);
  CHECK(lost.determined[0] == 1.0);
}

TEST_CASE("of two parameters that act alike only the sum is known") {
  evidence::LeastSquaresProblem problem;
  problem.parameters = {parameter(0.0), parameter(0.0)};
  problem.residuals = 10;
  problem.evaluate = [](std::span<const double> x, std::span<double> r) {
    for (double& value : r) value = x[0] + x[1] - 4.0;
  };
  const evidence::LeastSquaresFit fit = evidence::least_squares(problem);
  CHECK(fit.rank == 1);
  CHECK(fit.x[0] + fit.x[1] == Approx(4.0));
  CHECK(std::isinf(fit.standard_errors[0]));
  CHECK(std::isinf(fit.standard_errors[1]));

  problem.parameters = {parameter(1.0, 0.1), parameter(1.0, 1.0)};
  const evidence::LeastSquaresFit shared = evidence::least_squares(problem);
  // The surer one moves less: in the ratio of the variances.
  CHECK((shared.x[1] - 1.0) / (shared.x[0] - 1.0) == Approx(100.0).epsilon(1e-6));
  CHECK(shared.correlations[1] < -0.2);
}

TEST_CASE("a fit without parameters is its residuals") {
  evidence::LeastSquaresProblem problem;
  problem.residuals = 4;
  problem.evaluate = [](std::span<const double>, std::span<double> r) {
    for (double& value : r) value = 2.0;
  };
  const evidence::LeastSquaresFit fit = evidence::least_squares(problem);
  CHECK(fit.converged);
  CHECK(fit.rank == 0);
  CHECK(fit.residual_sd == Approx(2.0));
}
