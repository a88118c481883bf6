// What a JSON value is, for `got` of a diagnostic, in words that can be translated.
#pragma once

#include "base/json.hpp"
#include "base/phrase.hpp"

namespace zeroplan {

// `"two"`, `3.5`, `an array of 2 items`.
Phrase described(const Json& value);

}  // namespace zeroplan
