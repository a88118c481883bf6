// How a setting becomes a value of the scenario, and what is said of it.
#pragma once

#include "base/json.hpp"
#include "base/phrase.hpp"
#include "foreign/said_elsewhere.hpp"
#include "model/plan/scenario.hpp"

namespace zeroplan::foreign {

// What became of a setting. Each ends in one list of Meaning, which is where it is filed: what is
// not used is listed by its name, whatever it is.
enum class Use { taken, passed_over, unused, unknown, later };
struct Became {
  Use use = Use::unknown;
  Phrase as = {};  // taken: the flag; passed over: what counts
};

// "line 3: bf16" of its file.
Origin origin_of(const Setting& setting);

// What was said before, in a part that counts over this one, stays. Throws InputError for a value
// that the key cannot have; of one that is left to a variable the flags are asked.
Became take(ScenarioKey key, const Json& value, const Setting& setting, Meaning& meaning);

// The line for the user; `taken` as ReadLine has it.
ReadLine line_of(const Setting& setting, const Phrase& taken);

// Lists the setting where it belongs; one that is understood later belongs nowhere yet.
void file_setting(const Setting& setting, const Became& became, Tool tool, Meaning& meaning);

}  // namespace zeroplan::foreign
