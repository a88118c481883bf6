#include "model/families/recorded_sizes.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>

namespace zeroplan {
namespace {

// An exact share: sizes are whole, what a token has of its experts is not.
struct Share {
  std::int64_t above = 1;
  std::int64_t below = 1;
};

Share reduced(Share share) {
  const std::int64_t common = std::gcd(share.above, share.below);
  return common > 1 ? Share{share.above / common, share.below / common} : share;
}

// "hidden_size*3/num_attention_heads+2*head_dim".
class Formula {
 public:
  Formula(std::string_view text, const RecordedValues& values) : rest_(text), values_(values) {}

  // Nothing where a key has no value, or the sum is too large.
  std::optional<Share> value() {
    Share sum{0, 1};
    while (!rest_.empty()) {
      const bool minus = rest_.front() == '-';
      if (minus || rest_.front() == '+') rest_.remove_prefix(1);
      const std::optional<Share> term = product();
      if (!term || overflows(sum, *term)) return std::nullopt;
      const std::int64_t other = term->above * sum.below;
      sum = reduced({sum.above * term->below + (minus ? -other : other), sum.below * term->below});
    }
    return sum;
  }

 private:
  static constexpr std::int64_t kLargest = std::int64_t{1} << 30;

  static bool overflows(const Share& a, const Share& b) {
    const auto large = [](std::int64_t x) { return x > kLargest || x < -kLargest; };
    return large(a.above) || large(a.below) || large(b.above) || large(b.below);
  }

  std::string_view word() {
    const std::size_t end = std::min(rest_.find_first_of("*/+-"), rest_.size());
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return word;
  }

  std::optional<std::int64_t> factor() {
    const std::string_view name = word();
    std::int64_t number = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), number);
    if (read.ec == std::errc() && read.ptr == name.data() + name.size()) return number;
    return values_.size(name);
  }

  std::optional<Share> product() {
    Share product;
    bool divides = false;
    while (true) {
      const std::optional<std::int64_t> next = factor();
      if (!next || (divides && *next == 0) || overflows(product, {*next, 1})) return std::nullopt;
      (divides ? product.below : product.above) *= *next;
      product = reduced(product);
      if (rest_.empty() || rest_.front() == '+' || rest_.front() == '-') return product;
      divides = rest_.front() == '/';
      rest_.remove_prefix(1);
    }
  }

  std::string_view rest_;
  const RecordedValues& values_;
};

// "=" and a sum that is a whole number, "~" and one that may be a share.
Json number(std::string_view formula, const RecordedValues& values) {
  const std::optional<Share> found = Formula(formula.substr(1), values).value();
  const bool some = found && found->above != 0;
  if (some && found->below == 1) return Json(found->above);
  if (!some || formula.front() == '=') {  // the class rounds it in a way that nobody saw
    const std::size_t begin = formula.find_first_not_of("=~-0123456789*");
    const std::size_t end = formula.find_first_of("*/+-", begin);
    throw NotRecorded{std::string(formula.substr(begin, end - begin)),
                      phrase("sizes of which {} is a whole number, not 0", formula.substr(1))};
  }
  return Json(static_cast<double>(found->above) / static_cast<double>(found->below));
}

bool is_formula(const Json& value) {
  return value.is_string() && !value.as_string().empty() &&
         (value.as_string().front() == '=' || value.as_string().front() == '~');
}

}  // namespace

void put_numbers(Json& value, const RecordedValues& values) {
  if (is_formula(value)) {
    value = number(value.as_string(), values);
  } else if (value.is_array()) {
    for (Json& item : value.items()) put_numbers(item, values);
  } else if (value.is_object()) {
    for (auto& [key, member] : value.members()) put_numbers(member, values);
  }
}

}  // namespace zeroplan
