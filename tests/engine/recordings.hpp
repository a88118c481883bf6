// Where the recordings of the real engine stand.
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/json.hpp"
#include "tests/catch.hpp"
#include "tests/support/data.hpp"

namespace zeroplan {

inline std::string kept_fetch_recordings() {
  return std::string(ZEROPLAN_SOURCE_DIR) + "/tests/engine/data/fetch/recordings.jsonl";
}

// ZEROPLAN_TRACES names another file of recordings to hold the policies against.
inline std::string all_recordings() {
  const char* other = std::getenv("ZEROPLAN_TRACES");
  if (other != nullptr) return other;
  return testing::unpacked_data_path("engine_traces.jsonl");
}

// Calls `check` with every stage-3 recording of a file; returns how many there were.
template <typename Check>
int for_each_stage3_recording(const std::string& path, const Check& check) {
  std::ifstream file(path);
  int recordings = 0;
  for (std::string line; std::getline(file, line);) {
    const JsonDocument document = parse_json(line, path);
    const Json* wrapper = document.root.find("wrapper");
    if (wrapper == nullptr || wrapper->as_string() != "DeepSpeedZeroOptimizer_Stage3") continue;
    ++recordings;
    check(document.root);
  }
  return recordings;
}

// The same for the small recordings and for all.
template <typename Check>
void for_each_known_recording(const Check& check) {
  CHECK(for_each_stage3_recording(kept_fetch_recordings(), check) >= 10);
  const bool other = std::getenv("ZEROPLAN_TRACES") != nullptr;
  CHECK(for_each_stage3_recording(all_recordings(), check) >= (other ? 1 : 70));
}

}  // namespace zeroplan
