// All kept rehearsals: real programs on emulated GPUs (docs/rehearsal.md), and what is simulated of
// the same scenarios.
#pragma once

#include <string>
#include <vector>

#include "evidence/measurement.hpp"
#include "tests/identical/answer.hpp"

namespace zeroplan::identical {

struct Rehearsed {
  std::string file;  // "trl"
  evidence::Measurement run;
  Answer answer;
};

// Simulated when first asked for, on two threads; files and lines in their order.
const std::vector<Rehearsed>& all_rehearsed();

}  // namespace zeroplan::identical
