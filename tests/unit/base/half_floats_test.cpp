#include "base/half_floats.hpp"

#include <cmath>

#include "tests/catch.hpp"

namespace zeroplan {
namespace {

TEST_CASE("every bf16 and fp16 number survives the way to float and back") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const float b = float_of_bf16(pattern);
    const float h = float_of_fp16(pattern);
    if (!std::isnan(b) && bf16_of_float(b) != pattern) ++wrong;
    if (!std::isnan(h) && fp16_of_float(h) != pattern) ++wrong;
    if (std::isnan(b) && !std::isnan(float_of_bf16(bf16_of_float(b)))) ++wrong;
    if (std::isnan(h) && !std::isnan(float_of_fp16(fp16_of_float(h)))) ++wrong;
  }
  CHECK(wrong == 0);
}

// Between two neighbours the nearer one is taken, in the middle the one whose last bit is 0.
TEST_CASE("what lies between two 16-bit numbers goes to the nearest, ties to even") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x7bffU; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits);
    const auto high = static_cast<std::uint16_t>(bits + 1);
    const double a = float_of_fp16(low);
    const double b = float_of_fp16(high);
    const auto middle = static_cast<float>((a + b) / 2);
    if (fp16_of_float(middle) != (bits % 2 == 0 ? low : high)) ++wrong;
    if (fp16_of_float(std::nextafter(middle, 0.0F)) != low) ++wrong;
    if (fp16_of_float(std::nextafter(middle, 1e9F)) != high) ++wrong;
    if (fp16_of_float(-middle) != (0x8000U | (bits % 2 == 0 ? low : high))) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(fp16_of_float(65519.99F) == 0x7bffU);
  CHECK(fp16_of_float(65520.0F) == 0x7c00U);
  CHECK(fp16_of_float(-1e30F) == 0xfc00U);
  CHECK(float_of_bf16(bf16_of_float(1.00390625F)) == 1.0F);       // 1 + 2^-8: tie to even
  CHECK(float_of_bf16(bf16_of_float(1.01171875F)) == 1.015625F);  // 1 + 3 2^-8: tie to even
  CHECK(float_of_bf16(bf16_of_float(3.4e38F)) == INFINITY);
}

}  // namespace
}  // namespace zeroplan
