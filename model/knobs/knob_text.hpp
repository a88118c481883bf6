// A key's value as people type it on a command line: "3", "5e8", "true", "cpu".
#pragma once

#include <optional>
#include <string>

#include "base/phrase.hpp"
#include "model/knobs/ds_config.hpp"

namespace zeroplan {

// The value of a text for a key of that type: a whole number also as 5e8. Absent where the text is
// none of the type, and for lists and objects, which have no single value.
std::optional<KnobValue> value_in_text(const std::string& text, KnobType type);
// What would be one: "a whole number".
Phrase expected_text(KnobType type);

}  // namespace zeroplan
