// Where a knob does something: what the table's stages leave open, because it hangs on another
// knob or on the machine. A point of the search that differs only in knobs without effect is the
// same point; a move along such a knob is no move.
// Checked by tests/unit/tuner/search_space_test.cpp.
#pragma once

#include <vector>

#include "model/engine/engine_config.hpp"
#include "model/hardware/hardware.hpp"
#include "model/knobs/ds_config.hpp"

namespace zeroplan::tuner {

// Stage and offload: what decides whether other knobs act.
struct KnobSurroundings {
  int stage = 3;
  OffloadDevice offload_optimizer = OffloadDevice::none;
  OffloadDevice offload_parameter = OffloadDevice::none;
};

bool has_effect(Knob knob, const KnobSurroundings& around);

// What a search tries: the row's grid, else its searched_grid.
std::vector<KnobValue> search_grid(Knob knob);

// Values of the grid that a cluster cannot have, or that mean the same there: drives without NVMe,
// hpZ groups that do not divide a node, hpZ at all inside one node.
bool is_possible(Knob knob, const KnobValue& value, const Cluster& cluster);

}  // namespace zeroplan::tuner
