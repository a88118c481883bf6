// Why a rehearsal ran out of memory, what lived on the GPU at that moment, and what would have
// avoided it: causes read from PyTorch's own message, changes tried by the prediction.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "cli/explain_text.hpp"
#include "cli/rehearsed.hpp"

namespace zeroplan::cli {

struct RehearsedOom {
  const rehearsal::OutOfMemory* found = nullptr;
  const std::vector<rehearsal::LivingRow>* living = nullptr;
  std::vector<evidence::OomCause> causes;
  // Absent where the scenario is not known or cannot be predicted.
  std::optional<Plan> plan;
  StepResult base;  // of the plan, on the GPU with what the prediction counts too little taken off
  tuner::Remedies changes;
};

// Absent where no run ended so. What the prediction counts too little beside the rehearsal is taken
// off the GPU before changes are tried, so that what fits there makes up for what was missing
// here.
std::optional<RehearsedOom> out_of_memory_of(const Rehearsed& rehearsed,
                                             const Prediction& prediction);

// The innermost lines of Python's stack, indented.
Phrase frames_text(const std::vector<rehearsal::Frame>& frames);
std::string out_of_memory_text(const RehearsedOom& oom, const Translation& words);
Json to_json(const RehearsedOom& oom);

}  // namespace zeroplan::cli
