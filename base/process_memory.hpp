// How a process of short-lived, large vectors gets its memory from the system.
#pragma once

namespace zeroplan {

// Memory that is freed stays with the process: simulations write programs of megabytes and throw
// them away, and asking the system for their pages again takes longer than writing them does
// (docs/benchmarks.md). For a program's main(), before threads; without glibc it does nothing.
void keep_freed_memory();

}  // namespace zeroplan
