// Plan -> the options under which its model's graph is built.
#pragma once

#include "model/implementations/graph_options.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan {

GraphOptions graph_options(const Plan& plan);

}  // namespace zeroplan
