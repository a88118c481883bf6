// rank_end.hpp where no program is a rank of several.
#include "cli/rank_end.hpp"

namespace zeroplan::cli {

void tell_other_ranks(const InputError& /*error*/,
                      const std::vector<std::string>& /*words*/) noexcept {}

}  // namespace zeroplan::cli
