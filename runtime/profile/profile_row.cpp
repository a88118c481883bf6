#include "runtime/profile/profile_row.hpp"

namespace zeroplan::runtime {

const Json* setting(const ProfileRow& row, std::string_view key) {
  for (const auto& [name, value] : row.settings) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string text_setting(const ProfileRow& row, std::string_view key) {
  const Json* const value = setting(row, key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

std::int64_t whole_setting(const ProfileRow& row, std::string_view key) {
  const Json* const value = setting(row, key);
  return value != nullptr && value->is_integer() ? value->as_integer() : 0;
}

std::vector<std::int64_t> shape_of(const ProfileRow& row) {
  std::vector<std::int64_t> shape;
  const Json* const value = setting(row, "shape");
  if (value == nullptr) return shape;
  for (const Json& item : value->items()) shape.push_back(item.as_integer());
  return shape;
}

const ProfileRow* best(const std::vector<ProfileRow>& rows, std::string_view what) {
  const ProfileRow* found = nullptr;
  for (const ProfileRow& row : rows) {
    if (row.what != what) continue;
    if (found == nullptr || row.spread.median > found->spread.median) found = &row;
  }
  return found;
}

Json row_json(const ProfileRow& row, double processor_megahertz) {
  Json json = Json::object({{"what", row.what}});
  for (const auto& [key, value] : row.settings) json[key] = value;
  json["unit"] = row.unit;
  json["median"] = row.spread.median;
  json["q1"] = row.spread.q1;
  json["q3"] = row.spread.q3;
  json["n"] = row.spread.n;
  json["discarded"] = row.spread.discarded;
  const double megahertz = row.megahertz.value_or(processor_megahertz);
  json["megahertz"] = megahertz > 0.0 ? Json(megahertz) : Json();
  for (const auto& [key, value] : row.beside) json[key] = value;
  return json;
}

}  // namespace zeroplan::runtime
