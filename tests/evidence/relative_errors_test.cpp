// Sums over sources against what can be reckoned by hand.
#include "evidence/calibrate/relative_errors.hpp"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/catch.hpp"

using namespace zeroplan;

TEST_CASE("what another source may have: the spread between sources and within them") {
  const std::map<std::string, std::vector<double>> values = {
      {"a", {0.1, 0.1, 0.1}}, {"b", {0.2, 0.3, 0.4}}, {"none", {}}};
  const evidence::MeanOfOrigins both = evidence::mean_of_origins(values);
  CHECK(both.rows == 6);
  CHECK(both.mean == Approx(0.2));
  // Medians .1 and .3: variance .02. Within: 0 and (1.4826 * .1)^2.
  CHECK(both.sd == Approx(std::sqrt(0.02 + 0.5 * std::pow(0.14826, 2.0))));
  // One source says nothing of others.
  const evidence::MeanOfOrigins one = evidence::mean_of_origins({{"b", {0.2, 0.3, 0.4}}});
  CHECK(one.mean == Approx(0.3));
  CHECK(one.sd == Approx(0.14826));
  CHECK(evidence::mean_of_origins({}).rows == 0);
}

TEST_CASE("errors by origin come after those of all, in the order of the rows") {
  const std::vector<evidence::RowErrors> rows = {{"b", std::log(1.1), 0.0, std::log(1.2)},
                                                 {"a", std::log(0.8), 0.0, std::log(0.9)},
                                                 {"b", std::log(1.3), 0.0, std::log(1.4)}};
  const std::vector<evidence::OriginErrors> errors = evidence::errors_by_origin(rows, true);
  REQUIRE(errors.size() == 3);
  CHECK(errors[0].origin.empty());
  CHECK(errors[0].rows == 3);
  CHECK(errors[0].before.median == Approx(0.2));
  CHECK(errors[0].before.bias == Approx(0.1));
  CHECK(errors[1].origin == "b");
  CHECK(errors[1].rows == 2);
  CHECK(errors[1].left_out.median == Approx(0.3));
  CHECK(errors[2].before.bias == Approx(-0.2));
  CHECK(evidence::errors_by_origin({}, false).empty());
}
