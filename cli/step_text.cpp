#include "cli/step_text.hpp"

#include "cli/table.hpp"
#include "tuner/fit_ranking.hpp"

namespace zeroplan {

Phrase host_memory_text(const Plan& plan, const StepResult& result) {
  const std::string needed = gib_text(result.host.peak);
  const std::string there = gib_text(result.host.capacity);
  if (plan.cluster.node.host_memory.confidence != Confidence::assumed) {
    return phrase("  host memory  {} of {} per node\n", needed, there);
  }
  return phrase("  host memory  needs {} per node; unspecified; usual: {}\n", needed, there);
}

Phrase at_limit_text(const StepResult& result) {
  constexpr double kWorthALine = 1.0;  // percent
  const double share = 100.0 * (result.step.device_memory / result.step.total);
  if (is_at_limit(result)) {
    return phrase(
        "  at limit     within the model's error of the GPU's memory; giving memory back takes "
        "{:.0f} % of a step\n",
        share);
  }
  if (share < kWorthALine) return "";
  return phrase(
      "  flushes      the allocator gives memory back to the driver in every step: {:.0f} % of its "
      "time\n",
      share);
}

}  // namespace zeroplan
