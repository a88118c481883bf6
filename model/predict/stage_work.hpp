// Stages of a pipeline, each with a rank of its own: what step_work and step_traffic are for one.
#pragma once

#include <vector>

#include "model/plan/plan.hpp"
#include "model/predict/step_traffic.hpp"
#include "model/predict/step_work.hpp"

namespace zeroplan {

struct StageWork {
  Plan plan;
  StepWork work;
  StepTraffic traffic;
};

// The distinct stages of a plan (distinct_stages), in order. Precondition: it has a pipeline.
std::vector<StageWork> stage_works(const Plan& plan);

}  // namespace zeroplan
