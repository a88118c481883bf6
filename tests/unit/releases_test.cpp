// Which releases of DeepSpeed do what, and that a described behaviour is asked as its series is.
#include "model/releases.hpp"

#include "tests/catch.hpp"

using namespace zeroplan;

TEST_CASE("a rule acts from its first release up to the one that ended it", "[releases]") {
  constexpr ReleaseRule kRule = ReleaseRule::misses_recomputed_ends;
  CHECK_FALSE(acts(kRule, Version{0, 15, 4}));
  CHECK(acts(kRule, Version{0, 16, 0}));
  CHECK(acts(kRule, Version{0, 16, 7}));
  CHECK_FALSE(acts(kRule, Version{0, 16, 8}));
}

TEST_CASE("a described behaviour is that of its series", "[releases]") {
  for (std::size_t i = 0; i < kFirstReleases.size(); ++i) {
    const auto version = static_cast<DeepSpeedVersion>(i);
    CHECK(nearest_described(kFirstReleases[i]).version == version);
    CHECK(acts(ReleaseRule::stage1_without_zero, version) == (version == DeepSpeedVersion::v0_17));
  }
  CHECK(kFirstReleases.size() == static_cast<std::size_t>(kNewestDeepSpeed) + 1);
}

TEST_CASE("every rule of a release says where it was read", "[releases]") {
  for (const ReleaseRow& row : kReleaseRows) {
    CHECK(row.source.find(".py:") != std::string_view::npos);
    CHECK(acts(row.rule, row.since));
    CHECK_FALSE(acts(row.rule, row.until));
  }
}
