// Texts imported as `zeroplan import` does it, for the tests of one format each.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "evidence/importers/import.hpp"
#include "evidence/importers/run_summary.hpp"
#include "evidence/measurement.hpp"
#include "model/plan/scenario.hpp"
#include "model/plan/scenario_reader.hpp"

namespace zeroplan::test {

inline Scenario scenario_with(ScenarioKey key, std::string_view text) {
  Scenario scenario;
  scenario.set(key, parse_flag(info(key), text), {"test", ""});
  return scenario;
}

inline evidence::ImportedFile import_text(std::string_view text, const Scenario& given = {}) {
  return evidence::import_bytes(std::string(text), "run.log", given);
}

inline std::optional<evidence::Measurement> measure(std::string_view text,
                                                    const Scenario& given = {}) {
  return evidence::measurement_of(import_text(text, given).runs.front().findings, "run", "test");
}

inline double value_of(const evidence::Measurement& measurement, evidence::Metric metric) {
  return measurement.measured.number(metric).value_or(-1.0);
}

inline std::string scenario_text(const evidence::Measurement& measurement, ScenarioKey key) {
  const ExplicitValue* said = measurement.scenario.find(key);
  return said == nullptr ? "nothing" : said->value.dump();
}

inline bool notes_have(const evidence::Measurement& measurement, std::string_view words) {
  return measurement.notes.find(words) != std::string::npos;
}

inline constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
inline constexpr double kMib = 1024.0 * 1024.0;

}  // namespace zeroplan::test
