// A reader of one kind of log line. A log holds many kinds; each line goes to the readers in turn
// until one knows it. Readers are made for each process of a log and see its lines in order, so
// that they may remember a table's header or the message above.
#pragma once

#include <optional>
#include <string_view>

#include "evidence/importers/run_findings.hpp"

namespace zeroplan::evidence {

enum class LineOutcome {
  not_mine,
  understood,
  bad,  // mine, and not readable: the reader has said so to the findings
};

class LogLineReader {
 public:
  LogLineReader() = default;
  LogLineReader(const LogLineReader&) = delete;
  LogLineReader& operator=(const LogLineReader&) = delete;
  virtual ~LogLineReader() = default;

  // `line`: without colours, label and leading space.
  virtual LineOutcome read(std::string_view line, const LogPlace& place, RunFindings& findings) = 0;
  // Behind the last line of the process.
  virtual void finish(RunFindings& findings) { static_cast<void>(findings); }
};

// --- helpers of readers

// The number behind `key` in the line, past spaces, quotes, ':' and '='.
std::optional<double> number_after(std::string_view line, std::string_view key);
// The same for whole numbers that may have thousands' commas: "20,000".
std::optional<std::int64_t> count_after(std::string_view line, std::string_view key);
// Seconds of "02:52" or "1:48:00", the whole text; nothing for days and other forms.
std::optional<std::int64_t> clock_seconds(std::string_view text);
// The rank of "[Rank 3]", "[rank=3]" or "RANK 3:" anywhere in the line, else the label's.
LogPlace with_stated_rank(std::string_view line, const LogPlace& place);

}  // namespace zeroplan::evidence
