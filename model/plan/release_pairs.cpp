#include "model/plan/release_pairs.hpp"

#include <algorithm>
#include <array>

#include "model/releases.hpp"

namespace zeroplan {

bool stops_in_no_sync(const Version& deepspeed,
                      const Version& transformers,
                      std::int64_t gradient_accumulation_steps) {
  return gradient_accumulation_steps > 1 && acts(ReleaseRule::has_no_sync, deepspeed) &&
         acts(ReleaseRule::enters_no_sync, transformers);
}

bool refuses_accumulation(const Workload& workload, const Software& software) {
  return workload.engine == TrainingEngine::deepspeed &&
         workload.frontend == Frontend::hf_trainer &&
         stops_in_no_sync(software.deepspeed_release, software.transformers, 2);
}

// Sets of configs/software.json run: only releases that somebody said can be such a pair.
void keep_from_accumulating(Scenario& scenario, const Prepared& prepared, const Origin& searcher) {
  constexpr std::array kReleases{ScenarioKey::deepspeed_version, ScenarioKey::transformers_version};
  const auto said = [&](ScenarioKey key) { return scenario.find(key) != nullptr; };
  if (std::none_of(kReleases.begin(), kReleases.end(), said) ||
      said(ScenarioKey::gradient_accumulation_steps)) {
    return;
  }
  Scenario without_batch = scenario;
  without_batch.unset(ScenarioKey::micro_batch_size);
  without_batch.unset(ScenarioKey::global_batch_size);
  const Plan plan = resolve(without_batch, prepared);
  if (!refuses_accumulation(plan.workload, plan.software)) return;
  scenario.set(ScenarioKey::gradient_accumulation_steps, Json(std::int64_t{1}), searcher);
}

bool stops_at_fraction(const Version& deepspeed,
                       const Version& transformers,
                       std::int64_t hidden_size) {
  constexpr std::int64_t kTenths = 10;
  return hidden_size * hidden_size % kTenths != 0 &&
         acts(ReleaseRule::needs_pydantic_2, deepspeed) &&
         acts(ReleaseRule::fills_fractions, transformers);
}

}  // namespace zeroplan
