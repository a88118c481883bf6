// What a command prints for bad input (docs/contract.md section 3), as JSON and as an exception.
#pragma once

#include <exception>
#include <string>

#include "base/diagnostic.hpp"
#include "base/json.hpp"

namespace zeroplan::cli {

// The first diagnostic: {"file":…,"pointer":…,"expected":…,"got":…,"hint":…}, hint null where there
// is none.
Json error_json(const InputError& error);

// An internal error as the error of one line of a batch `file`; the rest of the batch goes on.
InputError defect(const std::exception& error, const std::string& file);

}  // namespace zeroplan::cli
