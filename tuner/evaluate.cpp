// One point of a search, simulated.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/defect.hpp"
#include "base/phrase_list.hpp"
#include "model/predict/job_time.hpp"
#include "simulator/planned_ranks.hpp"
#include "simulator/simulate.hpp"
#include "tuner/fit_ranking.hpp"
#include "tuner/search.hpp"

namespace zeroplan::tuner {
namespace {

Phrase lacks(const StepResult& result) {
  std::vector<std::string> names;
  for (const Limit& limit : result.limits) {
    std::string resource(name(kResourceNames, limit.resource));
    std::replace(resource.begin(), resource.end(), '_', ' ');
    if (limit.pool != Limit::Pool::none) resource = "buffers for weights on NVMe";
    names.push_back(std::move(resource));
  }
  return names.empty() ? "memory" : phrase_list(names, " and ");
}

// One rank stands in for all while searching. Where that says that the plan fits, but not for sure,
// the ranks that differ are asked: another than the heaviest may not fit.
StepResult searched(const Plan& plan,
                    const PredictOptions& predict,
                    simulator::SimulationMemo* memo,
                    Numbers numbers) {
  const double for_sure = std::max(0.999, 1.0 - 0.02 * (1.0 - predict.confidence));
  simulator::SimulateOptions options{.predict = predict,
                                     .other_networks = false,
                                     .verdict_alone = true,
                                     .stops_at_the_limit = numbers == Numbers::of_what_fits,
                                     .lockstep = false,
                                     .memo = memo};
  options.predict.likeliest_alone = true;
  StepResult result = simulator::simulate(plan, options);
  if (!simulator::ranks_differ(plan) || !result.fits || result.fit_probability >= for_sure)
    return result;
  options.lockstep = true;
  StepResult of_all = simulator::simulate(plan, options);
  return of_all.fits ? std::move(result) : std::move(of_all);
}

// Steps of full sequences where nothing else is known of them.
void take_speed(const SearchSpace& space,
                const Plan& plan,
                const StepResult& result,
                simulator::SimulationMemo* memo,
                Evaluated& item) {
  item.tokens_per_second = result.step.tokens_per_second_per_gpu;
  item.step = result.step.total;
  const std::optional<Plan> shorter = result.fits ? mean_step_plan(plan) : std::nullopt;
  if (!shorter) return;
  simulator::SimulateOptions options{.other_networks = false, .lockstep = false, .memo = memo};
  options.predict.likeliest_alone = true;
  item.step = simulator::simulate(*shorter, options).step.total;
  item.tokens_per_second =
      space.tokens_of_a_sequence() * static_cast<double>(plan.workload.micro_batch_size) *
      static_cast<double>(plan.workload.gradient_accumulation_steps) / item.step.seconds();
}

}  // namespace

Evaluated evaluate(const SearchSpace& space,
                   const Point& point,
                   const SearchLimits& limits,
                   simulator::SimulationMemo* memo,
                   Numbers numbers) {
  Evaluated item;
  item.point = point;
  const auto look = [&] {
    const Plan plan = space.plan(point);
    if (const Phrase why = startup_refusal(plan); !why.empty()) {
      item.why_not = phrase("DeepSpeed refuses: {}", why);
      return;
    }
    const StepResult result = searched(plan, limits.predict, memo, numbers);
    take_speed(space, plan, result, memo, item);
    item.gpu_memory = result.gpu.peak_total;
    item.host_memory = result.host.peak;
    item.fits = result.fits;
    item.at_limit = is_at_limit(result);
    if (!result.fits) {
      item.why_not = phrase("simulated: not enough {}", lacks(result));
    } else if (item.host_memory > limits.host_memory) {
      item.fits = false;
      item.why_not = "simulated: more than --max-host-memory";
    } else if (item.tokens_per_second < limits.tokens_per_second) {
      item.fits = false;
      item.why_not = "simulated: below --min-throughput";
    }
  };
  try {
    if (const Phrase defect = defect_in(look); !defect.empty()) {
      item.fits = false;
      item.why_not = defect;
    }
  } catch (const InputError& error) {
    item.why_not = phrase("refused: {}", error.diagnostics().front().expected);
  }
  return item;
}

}  // namespace zeroplan::tuner
