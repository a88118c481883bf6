// Reads what a training log says about failures that are not memory's: collectives that never
// ended, loss scales at their end, settings that the Trainer refuses, hosts that were not found.
//
// In: any text, as oom_text.hpp. Out: one symptom of a kind, at its first line, with the numbers of
// the text and an advice; in the order of the log. A log without any gives none.
// Sources of the messages: log_symptoms.cpp.   Checked by
// tests/unit/evidence/log_symptoms_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/phrase.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

struct LogSymptom {
  std::string_view code;  // "collective-timeout"
  int line = 0;           // of the log, from 1, where it is first told
  int times = 1;          // how often it is told
  Phrase text;
  Phrase advice;
};

// With a model, a collective of as many elements as one of its weights names it.
std::vector<LogSymptom> read_log_symptoms(std::string_view text, const Model* model = nullptr);

}  // namespace zeroplan
