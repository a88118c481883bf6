// Reads what a training log says about failures that are not memory's: collectives that never
// ended, loss scales at their end, settings that the Trainer refuses, hosts that were not found.
// What it knows stands in configs/failures.json (failure_table.hpp); here is what takes arithmetic.
//
// In: any text, as oom_text.hpp. Out: one symptom of a kind, at its first line, with the numbers of
// the text and an advice; in the order of the log.
// Checked by tests/unit/evidence/log_symptoms_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/phrase.hpp"
#include "evidence/failure_table.hpp"
#include "model/transformer.hpp"

namespace zeroplan::evidence {

struct LogSymptom {
  std::string_view code;  // "collective-timeout"
  FailureKind kind = FailureKind::stops;
  int line = 0;   // of the log, from 1, where it is first told
  int times = 1;  // how often it is told
  Phrase text;
  Phrase check;  // what to look at; empty where nothing is
  Phrase advice;
};

// An exception of Python that no row of the table knows.
struct UnknownError {
  int line = 0;
  std::string text;  // "ValueError: ..."
};

struct LogReading {
  std::vector<LogSymptom> failures;      // what stops or slows the run
  std::vector<LogSymptom> consequences;  // of something else, and harmless notes
  std::vector<LogSymptom> places;        // where in the program the first traceback runs through
  std::optional<UnknownError> unknown;   // the first, where no failure is known
  int lines = 0;
};

// With a model, a collective of as many elements as one of its weights names it.
LogReading read_log(std::string_view text, const Model* model = nullptr);

// What there is to tell: the failures, else the consequences.
std::vector<LogSymptom> read_log_symptoms(std::string_view text, const Model* model = nullptr);

}  // namespace zeroplan::evidence
