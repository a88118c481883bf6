// What one optimizer step puts on a rank's GPU, counted by phase: the form in which a simulated
// program and a rehearsed one (cli/rehearsal_work.hpp) are compared. What a step is made of, not
// how long it takes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "model/memory_category.hpp"
#include "simulator/engines/rank_program.hpp"

namespace zeroplan::simulator {

// Of one phase. Products, collectives and copies by what they are, in words that both sides spell
// alike (the functions below), with how often they occur.
struct PhaseWork {
  std::int64_t kernels = 0;    // without the ones below
  std::int64_t attention = 0;  // calls of fused attention, however many kernels they launch
  std::int64_t events = 0;     // recorded on a stream
  std::int64_t stream_waits = 0;
  std::int64_t host_waits = 0;  // for an event, a stream or the device
  std::map<std::string, std::int64_t> products, collectives, copies;
  Elements updated_on_host;  // parameters that the CPU's optimizer has stepped
};

// By Phase; of a step they are forward, backward and step.
using WorkByPhase = std::array<PhaseWork, kPhaseCount>;

// "bf16 4096 x 1024 x 2048", "bf16 8 of 128 x 64 x 64": dtype, batch, m, n, k. Which operand is
// transposed, and so which of m and n is called the first, is the library's: the larger one is.
std::string words_of(const MatrixProduct& product);
// "all_gather of 8 ranks, 4096 bytes": the full tensor's.
std::string words_of_collective(std::string_view name, std::int64_t ranks, Bytes bytes);
// "to device, 4096 bytes, pinned"
std::string words_of_copy(bool to_device, Bytes bytes, bool pinned);

// Micro-steps that repeat are counted as often as they are simulated.
WorkByPhase count_work(const Program& program, const StepSections& step);

// {"forward": {"kernels": 12, "products": {"bf16 8 x 4 x 2": 3}, ...}, ...}; phases without work
// are left out. Throws InputError for a document of another form.
Json to_json(const WorkByPhase& work);
WorkByPhase work_from_json(const Json& document);

// What occurs more or less often in one than in the other.
struct WorkDifference {
  Phase phase = Phase::forward;
  std::string what;  // "kernels", "product bf16 8 x 4 x 2", "collective ...", "copy ..."
  std::int64_t first = 0, second = 0;
};
std::vector<WorkDifference> differences(const WorkByPhase& first, const WorkByPhase& second);

}  // namespace zeroplan::simulator
