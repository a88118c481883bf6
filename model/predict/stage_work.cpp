#include "model/predict/stage_work.hpp"

#include <utility>

namespace zeroplan {

std::vector<StageWork> stage_works(const Plan& plan) {
  std::vector<StageWork> works;
  for (const std::int64_t stage : distinct_stages(plan)) {
    StageWork one{stage_plan(plan, stage), {}, {}};
    one.work = step_work(one.plan);
    one.traffic = step_traffic(one.plan, one.work);
    works.push_back(std::move(one));
  }
  return works;
}

}  // namespace zeroplan
