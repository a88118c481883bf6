// Has this machine the host memory that training will take? Asked before it starts: Linux promises
// more than there is, and what is killed hours later may be another program.
#pragma once

#include <optional>

#include "base/diagnostic.hpp"
#include "cli/arguments.hpp"
#include "cli/embedded_plan.hpp"

namespace zeroplan::cli {

// What the ranks of this node take of its memory: CPU ranks all they hold (at most `capacity`
// each), others what is offloaded; the file of --data, which every process has as tokens.
Bytes host_memory_needed(const EmbeddedRun& run, const Arguments& arguments, Bytes capacity);

// What is wrong where it is more than is available (runtime/memory/available_memory.hpp), or than
// --host-memory says. To be asked by every process before one of them trains: later the ranks'
// memory counts as taken.
std::optional<Diagnostic> lacking_host_memory(const EmbeddedRun& run,
                                              const Arguments& arguments,
                                              Bytes capacity);

}  // namespace zeroplan::cli
