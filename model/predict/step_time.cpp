#include "model/predict/step_time.hpp"

#include <algorithm>
#include <vector>

#include "model/cost/contention.hpp"
#include "model/predict/step_clock.hpp"
#include "model/predict/step_model.hpp"
#include "model/predict/step_rates.hpp"
#include "model/predict/step_spread.hpp"

namespace zeroplan {
namespace {

// Elements of a parameter that several modules of the model share, first and last stage of a
// pipeline both hold and add up.
Elements tied_elements(const Model& model) {
  std::vector<int> users(model.parameters.size(), 0);
  for (const Module& module : model.modules) {
    for (const int parameter : module.parameters) ++users[static_cast<std::size_t>(parameter)];
  }
  Elements tied;
  for (std::size_t i = 0; i < users.size(); ++i) {
    if (users[i] > 1) tied += model.parameters[i].numel;
  }
  return tied;
}

// A pipeline's step, ready to be evaluated under moved coefficients.
class PipelineModel {
 public:
  PipelineModel(const Plan& plan, const std::vector<StageWork>& stages) : plan_(plan) {
    for (const StageWork& stage : stages) {
      models_.emplace_back(stage.plan, stage.work.graph, stage.traffic);
    }
    const std::vector<std::int64_t> distinct = distinct_stages(plan);
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      const std::int64_t stands_for = representative_stage(plan, static_cast<std::int64_t>(s));
      const auto at = std::find(distinct.begin(), distinct.end(), stands_for);
      model_of_.push_back(static_cast<std::size_t>(at - distinct.begin()));
    }
    tied_ = tied_elements(*plan.tensor_model) * plan.engine.gradient_accumulation_dtype;
  }

  StepTime evaluate(const Coefficients& c, const ClassFactors& factors, bool links_moved) const {
    std::vector<StageTime> distinct;
    for (const StepModel& model : models_) distinct.push_back(model.stage(c, factors, links_moved));
    std::vector<StageSeconds> passes;
    double behind = 0.0, longest = 0.0, sum = 0.0;
    const StageTime* busiest = &distinct.front();
    const double m = static_cast<double>(plan_.workload.gradient_accumulation_steps);
    for (const std::size_t index : model_of_) {
      const StageTime& stage = distinct[index];
      passes.push_back(stage.passes);
      behind = std::max(behind, stage.behind);
      const double own = m * (stage.passes.forward + stage.passes.backward);
      sum += own;
      if (own > longest) busiest = &stage;
      longest = std::max(longest, own);
    }
    const PipelineSpan span = pipeline_span(passes, plan_.workload.gradient_accumulation_steps);
    const double tied = tied_reduction(c);
    const double scale = scaling_factor(plan_.cluster.nodes, c);
    const auto at_scale = [&](double seconds) { return Seconds::of(seconds * scale); };
    StepTime step;
    step.forward = at_scale(span.seconds * span.forward_share);
    step.backward = at_scale(span.seconds * (1.0 - span.forward_share));
    step.optimizer = at_scale(behind + tied);
    step.total = step.forward + step.backward + step.optimizer;
    const double communication = busiest->ranks + busiest->reductions + tied;
    step.exposed_communication = at_scale(communication);
    step.exposed_offload = at_scale(busiest->offload);
    step.lower_bound = at_scale(longest);
    step.upper_bound = at_scale(sum + behind + tied);
    step.bound = communication > longest - busiest->ranks ? Bound::communication : Bound::compute;
    fill_rates(plan_, step);
    return step;
  }

 private:
  double tied_reduction(const Coefficients& c) const {
    if (tied_ == Bytes::zero()) return 0.0;
    const CollectiveGroup ends = plan_.layout().first_and_last_stage();
    return collective_time(Collective::all_reduce, tied_, ends, plan_.cluster, c).seconds();
  }

  const Plan& plan_;
  std::vector<StepModel> models_;      // of the distinct stages
  std::vector<std::size_t> model_of_;  // by stage
  Bytes tied_;
};

}  // namespace

StepTime step_time(const Plan& plan, const ModelGraph& graph, const StepTraffic& traffic) {
  return StepModel(plan, graph, traffic).evaluate(plan.coefficients, unmoved(), false);
}

StepPrediction predict_step_time(const Plan& plan,
                                 const ModelGraph& graph,
                                 const StepTraffic& traffic) {
  const StepModel model(plan, graph, traffic);
  const auto evaluate = [&model](const Coefficients& c, const ClassFactors& factors, bool links) {
    return model.evaluate(c, factors, links);
  };
  return with_spread(evaluate, plan, graph, traffic);
}

StepTime pipeline_time(const Plan& plan, const std::vector<StageWork>& stages) {
  return PipelineModel(plan, stages).evaluate(plan.coefficients, unmoved(), false);
}

StepPrediction predict_pipeline_time(const Plan& plan, const std::vector<StageWork>& stages) {
  const StageWork& first = stages.front();
  const PipelineModel model(plan, stages);
  const auto evaluate = [&model](const Coefficients& c, const ClassFactors& factors, bool links) {
    return model.evaluate(c, factors, links);
  };
  return with_spread(evaluate, plan, first.work.graph, first.traffic);
}

}  // namespace zeroplan
