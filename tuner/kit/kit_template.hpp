// Templates of configs/kit: text with @NAME@ where a value goes.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/phrase.hpp"

namespace zeroplan::tuner {

using KitValues = std::map<std::string, Phrase, std::less<>>;

// The text of configs/kit/<name> with every @NAME@ replaced. A name without a value is a
// programmer's error.
Phrase filled_in(std::string_view name, const KitValues& values);

}  // namespace zeroplan::tuner
