// The formats that `zeroplan import` reads, as a table. A format is recognised by what stands in
// the file, never by the file's name:
//   lines      a log holds any mixture of them; each process of the log has its own readers
//   document   one JSON document
//   bytes      anything else, by its first bytes
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "base/json.hpp"
#include "evidence/importers/line_reader.hpp"
#include "evidence/importers/run_findings.hpp"

namespace zeroplan::evidence {

struct Importer {
  std::string_view format;  // "deepspeed-memory"
  std::string_view what;    // "DeepSpeed see_memory_usage"
  std::string_view unit;    // what is counted: "lines", "experiments"

  // One of the three; the others are null.
  std::unique_ptr<LogLineReader> (*lines)() = nullptr;
  struct Document {
    bool (*recognise)(const Json&) = nullptr;
    void (*read)(const Json&, RunFindings&) = nullptr;
  } document{};
  struct Binary {
    bool (*recognise)(std::string_view) = nullptr;
    void (*read)(std::string_view, RunFindings&) = nullptr;  // throws InputError
  } bytes{};
};

// In the order in which lines are offered to them.
std::span<const Importer> importers();

}  // namespace zeroplan::evidence
