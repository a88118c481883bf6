// Files of other tools as tests write them, and what was read of one.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include "foreign/said_elsewhere.hpp"

namespace zeroplan::testing {

// A folder of files that goes with the test.
class Files {
 public:
  Files()
      : folder_(std::filesystem::temp_directory_path() /
                ("zeroplan_from_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files() { std::filesystem::remove_all(folder_); }
  std::string add(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder_ / name;
    std::ofstream(path) << text;
    return path.string();
  }

 private:
  std::filesystem::path folder_;
};

inline std::string said(const foreign::Meaning& meaning, ScenarioKey key) {
  const ExplicitValue* found = meaning.scenario.find(key);
  if (found == nullptr) return "";
  return found->value.is_string() ? found->value.as_string() : found->value.dump();
}

}  // namespace zeroplan::testing
