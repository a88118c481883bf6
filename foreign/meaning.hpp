// What the settings of other tools mean here: a scenario, with the line that each value came from.
#pragma once

#include <string>

#include "foreign/said_elsewhere.hpp"
#include "foreign/settings.hpp"

namespace zeroplan::foreign {

// Adds what a part says to `meaning`; what was there before counts where both say it. Throws
// InputError for what changes memory or time and is not planned (QLoRA's paged optimizers,
// Unsloth, preference training with a second model), by that name.
void add_meaning(const Part& part, Meaning& meaning);

// The defaults of the tool that trains, for what no part said. Behind the last part.
void add_defaults(Meaning& meaning);

// Whether it trains by the Trainer with neither DeepSpeed nor FSDP: then DDP runs.
bool runs_ddp(const Meaning& meaning);

}  // namespace zeroplan::foreign
