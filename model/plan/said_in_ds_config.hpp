// Flags over a scenario document that carries its own ds_config, as zeroplan's kits write it: what
// a flag says of the batch, the precision or the optimizer replaces what that ds_config says of it,
// and a total batch that the new numbers would contradict is left out.
#pragma once

#include "model/plan/scenario.hpp"

namespace zeroplan {

// `result` has the flags' values already; its ds_config is changed where it is an inline object.
void say_in_ds_config(const Scenario& flags, Scenario& result);

}  // namespace zeroplan
