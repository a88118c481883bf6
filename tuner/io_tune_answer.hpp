// The tune/1 document of docs/contract.md section 5: what `tune --json` prints.
#pragma once

#include <optional>

#include "base/json.hpp"
#include "tuner/tune.hpp"

namespace zeroplan::tuner {

// `options`: those of the search; `price`: of a GPU-hour, in any currency.
Json to_json(const TuneAnswer& answer, const TuneOptions& options, std::optional<double> price);

}  // namespace zeroplan::tuner
