#include "model/predict/step_work.hpp"

#include "model/step/step_graph.hpp"

namespace zeroplan {

StepWork step_work(const Plan& plan) {
  StepWork work;
  work.graph = step_graph(plan);
  work.activations = activation_timeline(work.graph);
  if (runs_zero3(plan)) work.gathers = gather_timeline(plan, work.graph);
  return work;
}

}  // namespace zeroplan
