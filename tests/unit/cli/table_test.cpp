#include "cli/table.hpp"

#include "tests/catch.hpp"

using namespace zeroplan;
using cli::GibPair;

namespace {

Bytes gib(double value) { return Bytes::nearest(value * 1024.0 * 1024.0 * 1024.0); }

}  // namespace

TEST_CASE("a need near its limit has a digit more, on both sides of the limit") {
  const GibPair below(gib(23.41), gib(23.51));
  CHECK(below.needed == "23.41 GiB");
  CHECK(below.there == "23.51 GiB");
  const GibPair above(gib(23.56), gib(23.51));
  CHECK(above.needed == "23.56 GiB");
  CHECK(above.there == "23.51 GiB");
  const GibPair close(gib(23.508), gib(23.51));
  CHECK(close.needed == "23.508 GiB");
  CHECK(close.there == "23.510 GiB");
  const GibPair small(gib(7.595), gib(7.6));
  CHECK(small.needed == "7.595 GiB");
  CHECK(small.there == "7.600 GiB");
}

TEST_CASE("a need far from its limit, or without one, has the usual digits") {
  const GibPair far(gib(22.3), gib(23.51));
  CHECK(far.needed == "22.3 GiB");
  CHECK(far.there == "23.5 GiB");
  CHECK(GibPair(gib(5.25), gib(79.15)).needed == "5.25 GiB");
  CHECK(GibPair(gib(5.25), Bytes::infinite()).there == "no limit");
  CHECK(GibPair(gib(22.3), gib(23.51), "").needed == "22.3");
  CHECK(GibPair(gib(23.45), gib(23.51), "").needed == "23.45");
}
