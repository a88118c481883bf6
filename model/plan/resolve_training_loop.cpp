// `save_steps`, `eval_steps`, `logging_steps`, `dataloader_num_workers` and `mtbf` of a scenario.
// Source of the defaults: transformers 5.17 training_args.py (save_steps 500, logging_steps 500,
// eval_strategy no, dataloader_num_workers 0; the same since 4.40).

#include "base/described.hpp"
#include "model/plan/resolver.hpp"
#include "model/plan/training_loop.hpp"

namespace zeroplan {
namespace {

constexpr double kTrainersSteps = 500.0;

std::optional<Every> read(Resolver& r, ScenarioKey key) {
  const ExplicitValue* said = r.scenario.find(key);
  if (said == nullptr) return std::nullopt;
  const auto every = parse_every(said->value.as_string());
  if (!every) {
    r.problem(said->origin,
              "a number of steps, a share of all below 1, epoch, or no",
              described(said->value));
  }
  return every;
}

}  // namespace

void resolve_training_loop(Resolver& r) {
  TrainingLoop& loop = r.plan.loop;
  loop.save = read(r, ScenarioKey::save_steps);
  loop.evaluate = read(r, ScenarioKey::eval_steps);
  loop.log = read(r, ScenarioKey::logging_steps);
  loop.dataloader_workers = r.integer(ScenarioKey::dataloader_num_workers);
  loop.mtbf = r.integer(ScenarioKey::mtbf);
  const bool is_trainer = r.plan.workload.frontend == Frontend::hf_trainer;
  const bool has_samples = r.plan.workload.dataset && r.plan.workload.dataset->samples > 0;
  if (!has_samples) {
    if (loop.mtbf) r.warn("mtbf: how many samples a run has is not said, so it is not counted");
    return;
  }
  if (loop.evaluate && loop.evaluate->unit != Every::Unit::never && r.plan.evaluation == nullptr) {
    r.warn("eval_steps: what is evaluated is not said, so it is not counted (--evaluation)");
  }
  if (!is_trainer) return;
  // Those that nobody said.
  std::string defaults;
  const auto take = [&](const char* what, auto& place, auto value) {
    if (place) return;
    place = value;
    defaults += (defaults.empty() ? "" : ", ") + std::string(what);
  };
  const Every usual{Every::Unit::steps, kTrainersSteps};
  take("save_steps 500", loop.save, usual);
  take("logging_steps 500", loop.log, usual);
  take("dataloader_num_workers 0", loop.dataloader_workers, 0);
  if (r.plan.evaluation != nullptr) {
    take("an evaluation after each epoch", loop.evaluate, Every{Every::Unit::epoch, 0.0});
  }
  if (!defaults.empty()) {
    r.assume(phrase("of a whole run the Trainer's defaults: {}", defaults));
  }
}

}  // namespace zeroplan
