// Which calls of the CPU's kernels a profile times for the model of CPU ranks ([T19]): every kernel
// that a model of the embedded runtime calls, forward and backward, at shapes that keep its terms
// apart.
#pragma once

#include <optional>
#include <vector>

#include "model/dtype.hpp"
#include "model/graph/kernel_call.hpp"
#include "runtime/profile/profile_row.hpp"
#include "runtime/profile/profile_scale.hpp"

namespace zeroplan::runtime {

// Shapes: products [tokens, out, in]; attention and rotary positions [batch, sequence, heads,
// head_dim]; gradients of a table [rows, columns, table's rows]; the others [rows, columns].
struct CpuCase {
  Kernel kernel = Kernel::none;
  std::vector<std::int64_t> shape;
  DType dtype = DType::fp32;
  bool exact_gelu = false;
};
std::vector<CpuCase> cpu_cases(const ProfileScale& scale);
// Those that are timed with all threads too: small ones and large ones.
std::vector<CpuCase> threaded_cases(const ProfileScale& scale);

// Attention is causal; no bias, as many key heads as heads.
KernelCall call_of(const CpuCase& cpu_case);

// One call after the other, as training makes them: what the fit reads.
inline constexpr std::string_view kInARow = "in a row";

// The row of a case that took so long, on so many threads; and the case of such a row, nothing
// where the row is another.
ProfileRow row_of(const CpuCase& cpu_case, std::int64_t threads, Spread seconds);
std::optional<CpuCase> case_of(const ProfileRow& row);

}  // namespace zeroplan::runtime
