// The CPU's rows as coefficients of CPU ranks.
#pragma once

#include <vector>

#include "runtime/profile/profile_row.hpp"
#include "runtime/profile/value_list.hpp"

namespace zeroplan::runtime {

// The values under which [T19] and [T20] give the rows, fitted together; of each row the quartile
// that is faster, because what else runs on a machine only adds. `cores`: hardware threads of the
// machine. Rows that are not the model's are passed over; a note says how far the fit is from the
// others.
void cpu_values(const std::vector<ProfileRow>& rows, std::int64_t cores, ValueList& to);

}  // namespace zeroplan::runtime
