// Recordings of DeepSpeed: bad ones are collected, the others are replayed.
#include "evidence/replay.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const zeroplan::evidence::ReplayReport report =
      zeroplan::evidence::replay_text(fuzz::text_of(data, size), "traces.jsonl");
  for (const auto& problem : report.bad_lines) fuzz::check_message(problem);
  fuzz::require(report.reproduced <= report.configurations, "more reproduced than read");
  to_json(report).dump();
  return 0;
}
