// What the last step of a rehearsed program put on the GPU, counted by phase as a simulated step
// is (simulator/work_count.hpp), so that the two can be compared.
#pragma once

#include <optional>

#include "rehearsal/recorded_work.hpp"
#include "simulator/work_count.hpp"

namespace zeroplan::rehearsal {

// Of the last whole step: from the end of one update to the end of the next. Of calls that are
// launched together (grouped collectives) each is counted. Copies on the GPU are kernels, and so
// is a memset. Absent where there are not two updates. Fused attention is known where operations
// were watched; else its kernels are among the others.
std::optional<simulator::WorkByPhase> count_last_step(const RecordedWork& work);

}  // namespace zeroplan::rehearsal
