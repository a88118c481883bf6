// One value of the scenario document or of a flag against its row of kScenarioKeys.
#pragma once

#include <optional>

#include "model/diagnostic.hpp"
#include "model/plan/scenario.hpp"

namespace zeroplan {

// The value in canonical form ("bfloat16" -> "bf16", "4k" -> 4096); absent where it is wrong, with
// `expected`, `got` and perhaps `hint` of `problem` filled.
std::optional<Json> checked(const ScenarioKeyInfo& key, const Json& value, Diagnostic& problem);

}  // namespace zeroplan
