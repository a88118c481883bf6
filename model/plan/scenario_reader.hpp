// The scenario document and flags, read into a Scenario: every value against its row of
// kScenarioKeys (scenario.hpp).
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"
#include "model/plan/scenario.hpp"

namespace zeroplan {

// Reads a scenario document. Relative paths in it are taken from its folder where the file exists
// there. Throws InputError for unknown keys (with the nearest known one), keys that
// stand twice and every wrong value.
Scenario parse_scenario(const JsonDocument& document);
Scenario parse_scenario(const Json& document, const std::string& file);

// A flag's text as a value of its key. Throws InputError; `pointer` is what the user calls it,
// where that is not the flag: MODEL.
Json parse_flag(const ScenarioKeyInfo& key, std::string_view text, const std::string& pointer = "");

// `flags` over `base`: what flags say wins, also over what the ds_config inside the document says
// of the same thing (batch, precision, optimizer): a file of its own is for resolve() to agree
// with.
Scenario overlay(const Scenario& base, const Scenario& flags);

}  // namespace zeroplan
