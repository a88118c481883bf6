// Names of models and GPUs that exist and are not in our tables, so that whoever types one hears
// that, and not the nearest name of something else: a 4080 is no misspelled 4090.
//
// Names are compared folded: lower case, without separators, maker and organisation.
// Checked by tests/unit/model/known_names_test.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/phrase.hpp"

namespace zeroplan {

// Why a model or a GPU of that name is not planned; empty where the name is not known either.
std::string why_no_model(std::string_view name);
std::string why_no_gpu(std::string_view name);

// As did_you_mean(), among candidates with the same digits alone: what is numbered otherwise is
// another product.
Phrase did_you_mean_same_number(std::string_view word,
                                std::span<const std::string_view> candidates);

}  // namespace zeroplan
