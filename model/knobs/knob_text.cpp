#include "model/knobs/knob_text.hpp"

#include <charconv>
#include <cmath>

namespace zeroplan {
namespace {

std::optional<double> number_in(const std::string& text, bool whole) {
  constexpr double kLargest = 9e18;  // whole ones fit 64 bits
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (whole && std::floor(number) != number) return std::nullopt;
  if (!std::isfinite(number) || std::abs(number) > kLargest) return std::nullopt;
  return number;
}

}  // namespace

std::optional<KnobValue> value_in_text(const std::string& text, KnobType type) {
  switch (type) {
    case KnobType::boolean:
      if (text != "true" && text != "false") return std::nullopt;
      return KnobValue(text == "true");
    case KnobType::integer:
    case KnobType::real: {
      const auto number = number_in(text, type == KnobType::integer);
      if (!number) return std::nullopt;
      if (type == KnobType::real) return KnobValue(*number);
      return KnobValue(static_cast<std::int64_t>(*number));
    }
    case KnobType::text:
      return KnobValue(text);
    case KnobType::list:
    case KnobType::object:
      break;
  }
  return std::nullopt;
}

Phrase expected_text(KnobType type) {
  switch (type) {
    case KnobType::boolean:
      return "true or false";
    case KnobType::integer:
      return "a whole number";
    case KnobType::real:
      return "a number";
    case KnobType::text:
      return "a text";
    case KnobType::list:
    case KnobType::object:
      break;
  }
  return "a key with a single value";
}

}  // namespace zeroplan
