// Which scenarios a fuzz target may resolve and play: none that opens a file, and plans small
// enough that one input takes milliseconds.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>

#include "model/plan/plan.hpp"

namespace zeroplan::fuzz {

// Whether resolving would open a file: a fuzzer must not read whatever it finds.
inline bool opens_files(const Scenario& scenario) {
  for (const ScenarioKey key : {ScenarioKey::profile, ScenarioKey::ds_config}) {
    const ExplicitValue* said = scenario.find(key);
    if (said != nullptr && said->value.is_string()) return true;
  }
  for (const ScenarioKey key : {ScenarioKey::model, ScenarioKey::cluster}) {
    const ExplicitValue* said = scenario.find(key);
    if (said == nullptr || !said->value.is_string()) continue;
    const std::string& text = said->value.as_string();
    std::error_code error;
    if (text.find_first_of("/:.") != std::string::npos || std::filesystem::exists(text, error)) {
      return true;
    }
  }
  return false;
}

// Named models and clusters are as large as they are; what is written out may be small.
inline bool is_small(const Plan& plan) {
  constexpr std::size_t kMostTensors = 120;
  constexpr std::int64_t kMostLayers = 4, kMostRanks = 16, kMostMicroSteps = 8;
  return plan.whole_model->parameters.size() <= kMostTensors &&
         plan.whole_model->shape.layers <= kMostLayers && plan.degrees.world <= kMostRanks &&
         plan.engine.gradient_accumulation_steps <= kMostMicroSteps;
}

}  // namespace zeroplan::fuzz
