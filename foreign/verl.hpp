// verl's own: what verl.trainer.main_ppo makes of its configuration for an actor under FSDP.
#pragma once

#include "foreign/parts.hpp"

namespace zeroplan::foreign {

// Adds to `parts`, those by the rows of configs/foreign.json, what verl takes where nobody says it
// of adapters. Before these parts are finished.
void prepare_verl(PartsByKey& parts);
// Sets the sharding, the trainer and the batch; `first`: the part's first setting. Behind the last
// one. Throws InputError for an engine or a critic that is not planned.
void finish_verl(const Setting& first, const PartsByKey& parts, Meaning& meaning);

}  // namespace zeroplan::foreign
