// What fit and tune print alike: lists of sentences, and the changes after which something fits.
#pragma once

#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "tuner/fit.hpp"
#include "tuner/remedies.hpp"

namespace zeroplan::cli {

// The title on a line, the sentences below it; nothing where there is none.
Phrase list_text(const char* title, const std::vector<Phrase>& lines);

// A line for each release that keeps weights gathered, where the peak is in the passes that hold
// them.
Phrase because_text(const Plan& plan, const StepResult& result);

// Two lines for each: the change, and what then fits.
Phrase remedy_lines(const std::vector<tuner::Remedy>& remedies);

// What else was tried, and is not enough.
Phrase tried_line(const std::vector<Phrase>& tried);

// Of a plan as it stands, whose own prediction is `base`: what makes it fit, with its price, or
// what was tried in vain.
Phrase changes_text(const tuner::Remedies& changes, const StepResult& base);

}  // namespace zeroplan::cli
