#include "model/plan/release_pairs.hpp"

#include "tests/catch.hpp"

using namespace zeroplan;

TEST_CASE("no_sync stops accumulation under DeepSpeed 0.16 with transformers before 4.47.1") {
  const Version deepspeed{0, 16, 0}, before{0, 15, 4};
  const Version transformers{4, 46, 1}, after{4, 47, 1};
  CHECK(stops_in_no_sync(deepspeed, transformers, 2));
  CHECK(stops_in_no_sync({0, 17, 6}, {4, 47, 0}, 8));
  CHECK_FALSE(stops_in_no_sync(deepspeed, transformers, 1));
  CHECK_FALSE(stops_in_no_sync(before, transformers, 2));
  CHECK_FALSE(stops_in_no_sync(deepspeed, after, 2));
}

TEST_CASE("a fraction for the prefetch bucket stops widths whose 0.9 h^2 is no whole number") {
  const Version deepspeed{0, 15, 0}, transformers{4, 43, 4};
  for (const int hidden : {4096, 3584, 3072, 2048}) {
    CHECK(stops_at_fraction(deepspeed, transformers, hidden));
  }
  CHECK_FALSE(stops_at_fraction(deepspeed, transformers, 5120));
  CHECK_FALSE(stops_at_fraction({0, 14, 5}, transformers, 4096));
  CHECK_FALSE(stops_at_fraction(deepspeed, {4, 45, 0}, 4096));
}
