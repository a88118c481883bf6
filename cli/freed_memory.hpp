// How the C library treats memory that the program has freed.
#pragma once

namespace zeroplan {

// Keeps it for what comes next, where the C library can: a command that plays many plans makes and
// drops programs of tens of megabytes, and handing their pages back to the kernel each time took a
// quarter of its CPU time (docs/benchmarks.md).
void keep_freed_memory();

}  // namespace zeroplan
