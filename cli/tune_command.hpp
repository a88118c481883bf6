// zeroplan tune, for the list of commands.
#pragma once

#include "cli/arguments.hpp"

namespace zeroplan::cli {

int run_tune(const Arguments& arguments, Streams streams);

}  // namespace zeroplan::cli
