// Values of keys as they are typed.
#include "model/knobs/knob_text.hpp"

#include "tests/catch.hpp"

using namespace zeroplan;

TEST_CASE("numbers are typed as in ds_config.json, whole ones also with an exponent") {
  CHECK(value_in_text("500000000", KnobType::integer) == KnobValue(std::int64_t{500'000'000}));
  CHECK(value_in_text("5e8", KnobType::integer) == KnobValue(std::int64_t{500'000'000}));
  CHECK(value_in_text("0.5", KnobType::real) == KnobValue(0.5));
  for (const char* text : {"0.5", "5e", "", " 1", "1 ", "1e19", "nan", "inf", "three"}) {
    CAPTURE(text);
    CHECK_FALSE(value_in_text(text, KnobType::integer).has_value());
  }
  for (const char* text : {"nan", "inf", "-inf", "1e300"}) {
    CAPTURE(text);
    CHECK_FALSE(value_in_text(text, KnobType::real).has_value());
  }
}

TEST_CASE("true, false and texts are themselves; lists and sections have no single value") {
  CHECK(value_in_text("true", KnobType::boolean) == KnobValue(true));
  CHECK(value_in_text("false", KnobType::boolean) == KnobValue(false));
  CHECK_FALSE(value_in_text("True", KnobType::boolean).has_value());
  CHECK(value_in_text("cpu", KnobType::text) == KnobValue(std::string("cpu")));
  CHECK_FALSE(value_in_text("[1]", KnobType::list).has_value());
  CHECK_FALSE(value_in_text("{}", KnobType::object).has_value());
  CHECK(expected_text(KnobType::integer) == "a whole number");
}
