// Where the measurements, recordings and configs stand that tests read: data/README.md.
#pragma once

#include <string>

namespace zeroplan::testing {

// "corpus/hf_configs": a file or folder of data/.
inline std::string data_path(const std::string& name) {
  return std::string(ZEROPLAN_SOURCE_DIR) + "/data/" + name;
}

// "engine_traces.jsonl": a file of data/recordings.tar.xz, which CMake unpacks.
inline std::string unpacked_data_path(const std::string& name) {
  return std::string(ZEROPLAN_UNPACKED_DATA_DIR) + "/" + name;
}

}  // namespace zeroplan::testing
