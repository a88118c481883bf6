// A plan's graph seen as FSDP's units: which unit each pass over a block belongs to.
#pragma once

#include <vector>

#include "model/engine/fsdp.hpp"
#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan {

struct FsdpWork {
  std::vector<FsdpUnit> units;
  std::vector<int> unit_of_instance;  // index into units
  std::vector<int> unit_of_parameter;
  std::vector<int> visits;  // units in the order of the forward pass, without repeats
};

FsdpWork fsdp_work(const Plan& plan, const ModelGraph& graph);

}  // namespace zeroplan
