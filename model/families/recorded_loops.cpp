#include "model/families/recorded_loops.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace zeroplan {
namespace {

Json of_pass(const Json& value, std::int64_t pass);

// The passes of a row that repeats: numbers that follow each other, or the rows that it has.
void put_passes(const Json& row, std::vector<Json>& into) {
  const std::int64_t passes = row.find("repeat")->as_integer();
  const auto rows = std::find_if(row.members().begin(), row.members().end(), [](const auto& one) {
    return one.second.is_array();
  });
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    if (rows == row.members().end()) {
      into.push_back(row.find("at")->as_integer() + pass * row.find("step")->as_integer());
      continue;
    }
    for (const Json& one : rows->second.items()) into.push_back(of_pass(one, pass));
  }
}

Json unfolded(const Json& list, std::int64_t pass) {
  std::vector<Json> whole;
  for (const Json& item : list.items()) {
    if (item.find("repeat") != nullptr) {
      put_passes(item, whole);
    } else {
      whole.push_back(of_pass(item, pass));
    }
  }
  return Json::array(std::move(whole));
}

// A value in one pass: a number that goes on by a step, a text with the pass's number in it, or one
// that holds such values.
Json of_pass(const Json& value, std::int64_t pass) {
  if (value.is_array()) return unfolded(value, pass);
  if (!value.is_object()) return value;
  const Json *at = value.find("at"), *step = value.find("step"), *text = value.find("text");
  if (at != nullptr && step != nullptr) return {at->as_integer() + pass * step->as_integer()};
  if (at != nullptr && text != nullptr) {
    std::string made = text->as_string();
    return {made.replace(made.find("{}"), 2, std::to_string(at->as_integer() + pass))};
  }
  Json made = value;
  for (auto& [key, member] : made.members()) member = of_pass(member, pass);
  return made;
}

bool has_loop(const Json& rows) {
  return std::any_of(rows.items().begin(), rows.items().end(), [](const Json& row) {
    return row.find("repeat") != nullptr;
  });
}

// The modules of a list, one entry after the other: named as the first of them.
Json unfolded_modules(const Json& modules) {
  std::vector<Json> whole;
  for (const Json& row : modules.items()) {
    if (row.find("repeat") == nullptr) {
      whole.push_back(row);
      continue;
    }
    std::string stem = row.find("name")->as_string();
    stem.pop_back();  // the number of the first
    for (std::int64_t entry = 0; entry < row.find("repeat")->as_integer(); ++entry) {
      for (const Json& part : row.find("modules")->items()) {
        whole.push_back(part);
        whole.back()["name"] = stem + std::to_string(entry) + part.find("name")->as_string();
      }
    }
  }
  return Json::array(std::move(whole));
}

}  // namespace

void unfold_loops(Json& graph) {
  for (Json& block : graph["blocks"].items()) {
    if (!has_loop(block["events"])) continue;
    for (const char* name : {"events", "tensors"}) block[name] = unfolded(block[name], 0);
  }
  if (has_loop(graph["modules"])) graph["modules"] = unfolded_modules(graph["modules"]);
}

}  // namespace zeroplan
