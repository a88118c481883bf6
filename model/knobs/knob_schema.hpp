// The knob table as a JSON Schema: what editors and validators read about ds_config.json.
#pragma once

#include "base/json.hpp"
#include "model/software.hpp"

namespace zeroplan {

// The schema (draft-07) of the ds_config.json that a release of DeepSpeed reads: type, range,
// default, unit and meaning of each key, other spellings, what is deprecated. Keys of later
// releases are left out, removed ones refused; unknown keys are refused in the sections in which
// DeepSpeed refuses them. Values that work and are not plain (quoted numbers, null for a default)
// are errors to the schema, as they are to strict readers; `lint` judges them more mildly.
Json knob_schema(const Version& release);

}  // namespace zeroplan
