// A measurement as the profile's document lists it: what, under which settings, its spread, and the
// clock it was taken at.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "runtime/profile/spread.hpp"

namespace zeroplan::runtime {

struct ProfileRow {
  std::string what;                                    // "host_memory_triad"
  std::vector<std::pair<std::string, Json>> settings;  // threads, bytes, dtype ...
  std::string unit;
  Spread spread;
  // Of the GPU that was measured, 0 where nobody says; without it the processor's is noted.
  std::optional<double> megahertz = std::nullopt;
  std::vector<std::pair<std::string, Json>> beside = {};  // what else was seen: CUPTI's time ...
};

// Null without it.
const Json* setting(const ProfileRow& row, std::string_view key);
std::string text_setting(const ProfileRow& row, std::string_view key);    // "" without it
std::int64_t whole_setting(const ProfileRow& row, std::string_view key);  // 0 without it
std::vector<std::int64_t> shape_of(const ProfileRow& row);                // "shape"

// The row of that name with the largest median; null without one.
const ProfileRow* best(const std::vector<ProfileRow>& rows, std::string_view what);

// processor_megahertz stands in where the row has no clock of its own.
Json row_json(const ProfileRow& row, double processor_megahertz);

}  // namespace zeroplan::runtime
