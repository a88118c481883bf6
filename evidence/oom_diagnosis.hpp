// What the text of an out-of-memory error says by itself, before anything is known about the run:
// fragmentation, other processes on the GPU, a limit, a GPU that is too small for the request.
//
// Every cause is a sentence with the numbers of the text and an advice. Order: the likeliest first.
// Checked by tests/unit/evidence/oom_diagnosis_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/phrase.hpp"
#include "evidence/oom_text.hpp"

namespace zeroplan::evidence {

struct OomCause {
  std::string_view code;  // "fragmentation"
  Phrase text;            // "1.20 GiB are reserved and not allocated, more than the 98.00 MiB ..."
  Phrase advice;          // empty where there is none
};

std::vector<OomCause> diagnose(const OomEvent& event);

// Memory of other processes on the GPU, as stated, or what capacity, free and this process leave.
// Absent where the text does not tell this process from others.
std::optional<Bytes> memory_of_others(const OomEvent& event);

// "98.00 MiB": as PyTorch prints it.
std::string printed(Bytes bytes);

}  // namespace zeroplan::evidence
