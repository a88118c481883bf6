// `simulate --batch`: one scenario a line in, one result a line out, as they come.
#pragma once

#include "cli/arguments.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan {

// The lines of `file` ("-": standard input) on --jobs threads. Each answer is written when it and
// those of the lines before it are there, as one piece and at once, so that whoever holds a pipe
// open gets it before the next line, and what was done stays when the program is killed. Lines are
// read as threads become free, and few answers wait for an earlier one: the memory does not depend
// on the number of lines. A signal ends it after the lines that were begun. The exit code of the
// command.
int run_batch(const std::string& file,
              const Arguments& arguments,
              const SimulateOptions& options,
              Streams streams);

}  // namespace zeroplan
