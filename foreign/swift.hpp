// ms-swift's own: the ds_configs that it names and what it does where nobody says.
#pragma once

#include <string>

#include "base/json.hpp"
#include "foreign/said_elsewhere.hpp"

namespace zeroplan::foreign {

// `--deepspeed zero3`: the file of swift/config of that name; null for a name of none.
Json ds_config_of_swift(const std::string& name);

// Behind the last part, for what none of them said.
void add_defaults_of_swift(Meaning& meaning);

}  // namespace zeroplan::foreign
