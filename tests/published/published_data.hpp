// Reads a table of published values: a file of this folder with its source and its tolerance.
#pragma once

#include <string>
#include <string_view>

#include "base/check.hpp"
#include "base/json.hpp"

namespace zeroplan::testing {

inline Json published(const std::string& file) {
  return read_json_file(std::string(ZEROPLAN_SOURCE_DIR) + "/tests/published/" + file).root;
}

inline double number(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  ZP_CHECK(value != nullptr && value->is_number(), "a number is missing in a published table");
  return value->as_number();
}

inline std::int64_t whole(const Json& object, std::string_view key) {
  return static_cast<std::int64_t>(number(object, key));
}

inline const std::string& text(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  ZP_CHECK(value != nullptr && value->is_string(), "a text is missing in a published table");
  return value->as_string();
}

}  // namespace zeroplan::testing
