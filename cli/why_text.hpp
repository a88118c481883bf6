// The alternatives for a recommendation as sentences, for `fit --why` and the report.
#pragma once

#include <vector>

#include "base/json.hpp"
#include "base/phrase.hpp"
#include "cli/language/translation.hpp"
#include "tuner/why.hpp"

namespace zeroplan::cli {

// "ZeRO-2, micro-batch 8 x 2: does not fit: GPU memory needs …; micro-batch 4 x 4: 6 % slower".
Phrase alternative_text(const tuner::Alternative& alternative, const tuner::StrategyResult& chosen);

// [{"kind","text","share","other","same_batch"}] of docs/contract.md: bytes, seconds, tokens/s per
// GPU.
Json alternatives_json(const std::vector<tuner::Alternative>& alternatives,
                       const tuner::StrategyResult& chosen,
                       const Translation& words);

// How sure that is: what memory and time of this kind of plan were compared with, and what would
// make this very plan surer. A line each.
std::vector<Phrase> trust_lines(const Plan& plan);

// {"rehearsed","memory","time","text":[…]} of docs/contract.md.
Json trust_json(const Plan& plan, const Translation& words);

}  // namespace zeroplan::cli
