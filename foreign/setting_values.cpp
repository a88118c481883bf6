#include "foreign/setting_values.hpp"

#include <algorithm>
#include <charconv>

#include "base/written_names.hpp"

namespace zeroplan::foreign {

std::int64_t count_of(const Json& value) {
  if (value.is_integer()) return std::max<std::int64_t>(value.as_integer(), 0);
  if (!value.is_string()) return 0;
  std::int64_t count = 0;
  const std::string& text = value.as_string();
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  return error == std::errc() && stop == text.data() + text.size() && count > 0 ? count : 0;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.as_string() : value.dump();
}

bool is_on(const Json& value) {
  if (value.is_boolean()) return value.as_boolean();
  const std::string text = folded(text_of(value), "");
  return text == "true" || text == "yes" || text == "1" || text == "auto" || text == "full" ||
         text == "on";
}

bool is_switched_off(const Json& value) {
  if (value.is_boolean()) return !value.as_boolean();
  const std::string text = folded(text_of(value), "");
  const auto is_it = [&](std::string_view word) { return word == text; };
  return !first_name("false|no|none|0|off", is_it).empty();
}

bool says_nothing(const Json& value) {
  return value.is_null() ||
         (value.is_string() && (value.as_string().empty() || value.as_string() == "null"));
}

std::vector<std::string> names_in(const Json& value) {
  std::vector<std::string> names;
  for (const Json& item : value.items()) names.push_back(text_of(item));
  if (!value.is_string()) return names;
  std::string name;
  for (const char c : value.as_string() + ",") {
    if (c != ',' && c != ' ' && c != '[' && c != ']') {
      name += c;
    } else if (!name.empty()) {
      names.push_back(name);
      name.clear();
    }
  }
  return names;
}

}  // namespace zeroplan::foreign
