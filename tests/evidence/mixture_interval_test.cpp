// Quantiles of mixtures against what can be said by hand.
#include "evidence/mixture_interval.hpp"

#include <cmath>
#include <vector>

#include "tests/catch.hpp"

using namespace zeroplan;

TEST_CASE("one distribution gives its own interval back, whatever its weight") {
  const auto [low, high] = evidence::mixture_interval({{90.0, 110.0, 0.3}});
  CHECK(low == Approx(90.0).epsilon(1e-3));
  CHECK(high == Approx(110.0).epsilon(1e-3));
  const auto certain = evidence::mixture_interval({{50.0, 50.0, 1.0}});
  CHECK(certain.first == Approx(50.0));
  CHECK(certain.second == Approx(50.0));
}

TEST_CASE("the interval of a mixture lies inside the hull and counts by weight") {
  // Far apart: 10 % of the lower half is 5 % of all, so each end moves inwards.
  const auto [low, high] = evidence::mixture_interval({{9.0, 11.0, 0.5}, {99.0, 101.0, 0.5}});
  CHECK(low == Approx(10.0 - 1.2816 / 1.645).epsilon(1e-3));
  CHECK(high == Approx(100.0 + 1.2816 / 1.645).epsilon(1e-3));
  // What has 4 % of the weight does not move an end; what has 20 % does.
  CHECK(evidence::mixture_interval({{9.0, 11.0, 0.96}, {99.0, 101.0, 0.04}}).second < 13.0);
  CHECK(evidence::mixture_interval({{9.0, 11.0, 0.80}, {99.0, 101.0, 0.20}}).second > 99.0);
  // No weight, no say.
  CHECK(evidence::mixture_interval({{9.0, 11.0, 1.0}, {99.0, 101.0, 0.0}}).second ==
        Approx(11.0).epsilon(1e-3));
}

TEST_CASE("what is impossible is cut off and its share given to the rest") {
  // Half of it is possible: a half normal, whose 95 % quantile is where 2.5 % of all begin.
  const auto [low, high] = evidence::mixture_interval({{90.0, 110.0, 1.0, 100.0}});
  const double sd = 10.0 / 1.645;
  CHECK(low == Approx(100.0 - 1.96 * sd).epsilon(1e-3));
  CHECK(high == Approx(100.0 - 0.0627 * sd).epsilon(1e-3));
  CHECK(evidence::mixture_interval({{90.0, 110.0, 1.0, 500.0}}).second ==
        Approx(110.0).epsilon(1e-3));
}
