#include "base/units.hpp"

#include "model/dtype.hpp"
#include "tests/catch.hpp"

using namespace zeroplan::literals;
using zeroplan::Bytes;
using zeroplan::Elements;
using zeroplan::Seconds;

TEST_CASE("sizes convert through named widths only") {
  CHECK(Elements::of(3) * zeroplan::DType::bf16 == 6_B);
  CHECK(2_GiB == Bytes::of(2147483648));
  CHECK(2_GB == Bytes::of(2000000000));
  CHECK((1_GiB).gib() == 1.0);
}

TEST_CASE("size divided by rate is time, and back") {
  CHECK((3_GB / 1.5_GBps).seconds() == Approx(2.0));
  CHECK((1.5_us).seconds() == Approx(1.5e-6));
}

TEST_CASE("infinity means no limit and absorbs additions") {
  CHECK((Bytes::infinite() + 1_B).is_infinite());
  CHECK((Bytes::infinite() - 1_B).is_infinite());
  CHECK(1_GiB < Bytes::infinite());
  CHECK(Elements::infinite().times_width(2).is_infinite());
}

TEST_CASE("a product or sum that does not fit is a failed check") {
  CHECK_THROWS_AS(Bytes::of(INT64_MAX / 2) * 3, zeroplan::SizeOverflow);
  CHECK_THROWS_AS(Bytes::of(INT64_MAX - 1) + Bytes::of(INT64_MAX - 1), zeroplan::SizeOverflow);
}
