// One value of the scenario document or of a flag against its row of kScenarioKeys.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/diagnostic.hpp"
#include "model/plan/scenario.hpp"

namespace zeroplan {

// The value in canonical form ("bfloat16" -> "bf16", "4k" -> 4096); absent where it is wrong, with
// `expected`, `got` and perhaps `hint` of `problem` filled.
std::optional<Json> checked(const ScenarioKeyInfo& key, const Json& value, Diagnostic& problem);

// What a flag of a key of objects says, one line an object: "reward=MODEL,cpu", or JSON. `file` is
// for messages about the JSON. Throws InputError.
Json objects_of_flag(std::string_view text, const std::string& file);

}  // namespace zeroplan
