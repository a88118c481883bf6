// All recordings of tests/engine/data/recorded (made by tests/reference/record_engine) against the
// engine policies, by the same way as `zeroplan replay`.
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "evidence/replay.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

std::vector<std::string> files_of_recordings() {
  std::vector<std::string> files;
  const std::string folder = std::string(ZEROPLAN_SOURCE_DIR) + "/tests/engine/data/recorded";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
  }
  return files;
}

}  // namespace

TEST_CASE("every configuration that was recorded here is reproduced") {
  int configurations = 0;
  for (const std::string& file : files_of_recordings()) {
    const evidence::ReplayReport report =
        evidence::replay_text(read_text_file(file, std::int64_t{1} << 30), file);
    INFO(file);
    for (const Diagnostic& diagnostic : report.bad_lines) {
      UNSCOPED_INFO(diagnostic.pointer << ": expected " << diagnostic.expected.english());
    }
    CHECK(report.bad_lines.empty());
    for (const evidence::ReplayMismatch& mismatch : report.mismatches) {
      UNSCOPED_INFO(to_json(mismatch).dump());
    }
    CHECK(report.mismatches.empty());
    CHECK(report.reproduced == report.configurations);
    configurations += report.configurations;
  }
  CHECK(configurations >= 120);
}

}  // namespace zeroplan
