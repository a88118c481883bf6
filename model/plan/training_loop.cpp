#include "model/plan/training_loop.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/json.hpp"

namespace zeroplan {

std::optional<Every> parse_every(const std::string& text) {
  constexpr double kMostSteps = 1e9;
  if (text == "no" || text == "never" || text == "0") return Every{};
  if (text == "epoch") return Every{Every::Unit::epoch, 0.0};
  double count = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (count > 0.0 && count < 1.0) return Every{Every::Unit::share, count};
  if (count < 1.0 || count > kMostSteps || count != std::floor(count)) return std::nullopt;
  return Every{Every::Unit::steps, count};
}

std::string to_string(const Every& every) {
  switch (every.unit) {
    case Every::Unit::never:
      return "no";
    case Every::Unit::epoch:
      return "epoch";
    case Every::Unit::steps:
      return std::to_string(static_cast<std::int64_t>(every.count));
    case Every::Unit::share:
      return Json(every.count).dump();
  }
  return "no";
}

std::int64_t times(const Every& every, std::int64_t steps, double epochs, bool at_the_end) {
  switch (every.unit) {
    case Every::Unit::never:
      return 0;
    case Every::Unit::epoch:
      return static_cast<std::int64_t>(std::ceil(epochs));
    case Every::Unit::steps:
    case Every::Unit::share: {
      const double count = every.unit == Every::Unit::steps
                               ? every.count
                               : std::ceil(every.count * static_cast<double>(steps));
      const auto gap = std::max<std::int64_t>(1, static_cast<std::int64_t>(count));
      return at_the_end ? (steps + gap - 1) / gap : steps / gap;
    }
  }
  return 0;
}

}  // namespace zeroplan
