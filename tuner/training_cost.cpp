#include "tuner/training_cost.hpp"

namespace zeroplan::tuner {

std::optional<double> hourly_price(const CostQuestion& question,
                                   const std::string& written,
                                   const Cluster& cluster) {
  if (!question.price_per_gpu_hour) return price_of(question.prices, written, cluster);
  return *question.price_per_gpu_hour * static_cast<double>(cluster.total_gpus());
}

TrainingCost training_cost(const CostQuestion& question,
                           const std::string& written,
                           const Plan& plan,
                           const StepResult& result) {
  constexpr double kAssumedTokens = 1e9;
  constexpr double kSecondsInAnHour = 3600.0;
  TrainingCost cost;
  cost.assumed = !question.tokens && !result.job;
  cost.tokens = question.tokens.value_or(cost.assumed ? kAssumedTokens : 0.0);
  const double tokens_per_second =
      result.step.tokens_per_second_per_gpu * static_cast<double>(plan.cluster.total_gpus());
  const double seconds =
      cost.tokens > 0.0 ? cost.tokens / tokens_per_second : result.job->seconds().seconds();
  cost.hours = seconds / kSecondsInAnHour;
  cost.price_per_hour = hourly_price(question, written, plan.cluster);
  if (cost.price_per_hour) cost.cost = *cost.price_per_hour * cost.hours;
  return cost;
}

}  // namespace zeroplan::tuner
