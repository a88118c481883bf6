// Reads users' logs, traces and result folders into measurements: `zeroplan import`,
// docs/import.md. Nothing of a file is ever executed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "evidence/importers/run_findings.hpp"
#include "evidence/measurement.hpp"

namespace zeroplan::evidence {

struct FormatCount {
  std::string_view format;
  std::string_view what;
  std::string_view unit;
  std::int64_t count = 0;
};

// One training run of a file: mostly the file; each experiment of a folder.
struct ImportedRun {
  std::string id;
  RunFindings findings;
};

struct ImportedFile {
  std::string file;
  std::vector<FormatCount> formats;  // those that were there
  std::int64_t lines = 0;            // of a log, without empty ones
  std::int64_t skipped = 0;          // of them, of no known format
  std::vector<ImportedRun> runs;
};

// `given`: what the user said of the scenario; it stands before what the file says. Throws
// InputError where the file cannot be read or nothing in it is of a known format.
ImportedFile import_file(const std::string& path, const Scenario& given);
ImportedFile import_bytes(std::string bytes, const std::string& file, const Scenario& given);

}  // namespace zeroplan::evidence
