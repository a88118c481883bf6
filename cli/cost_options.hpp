// What commands read from the command line about hours and money (--tokens, --price, --prices), and
// how they print them.
#pragma once

#include <optional>
#include <string>

#include "base/phrase.hpp"
#include "cli/arguments.hpp"
#include "tuner/training_cost.hpp"

namespace zeroplan::cli {

// Throws InputError.
tuner::CostQuestion cost_question_of(const Arguments& arguments);

// The cluster as it was written on the command line or in a document; empty for an inline one.
std::string written_cluster(const Scenario& scenario);

Phrase hours_text(double hours);  // "48 seconds", "3.4 hours", "12.1 days"
std::string money_text(const std::optional<double>& cost, const std::string& currency);  // "12 USD"
Phrase size_text(const tuner::TrainingCost& cost);  // "1 B tokens"

}  // namespace zeroplan::cli
