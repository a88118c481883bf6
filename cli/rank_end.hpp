// The end of a rank before it has joined the others of its job: bad flags, a plan that cannot be, a
// file that is missing. The others would wait for it.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "cli/arguments.hpp"
#include "runtime/processes/join.hpp"

namespace zeroplan::cli {

// Bad input that the other ranks have heard of.
class KnownToRanks : public InputError {
 public:
  explicit KnownToRanks(const InputError& error) : InputError(error.diagnostics()) {}
};

// The secret and the transport that flags and the environment say. Throws InputError.
runtime::JoinOptions join_options_of(const std::optional<std::string>& collectives,
                                     const std::optional<std::string>& secret_file);

// Tells the other ranks of a launcher's job that this one ends, and why, unless they know. Nothing
// where this process is no rank of several. Takes up to ten seconds where they do not come.
void tell_other_ranks(const InputError& error, const Arguments& arguments) noexcept;

// The same for an error that is no bad input, a driver's or no memory; of bad input the others are
// told when the user has been.
void tell_of_no_input(const std::exception& error, const Arguments& arguments) noexcept;

// The same for the words of a command line that may not have been understood; of `run` and `verify`
// alone, because other commands join nobody.
void tell_other_ranks(const InputError& error, const std::vector<std::string>& words) noexcept;

}  // namespace zeroplan::cli
