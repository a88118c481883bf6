// Everything that is wrong with a ds_config.json for the run at hand, as far as the run is known.
//
// In: the file, and the part of a scenario that was said. Out: findings, errors first, and the
// rules that could not be judged with what they miss. Nothing is assumed about what was not said,
// except the release of DeepSpeed (the newest) and who reads the file: the Trainer where it leaves
// values to it ("auto"), else DeepSpeed itself.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "model/knobs/rules.hpp"
#include "model/lint/launch.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

struct LintRequest {
  // The prediction of a plan: simulate(), as every other command has it. A lint that takes what
  // many files are worth can take predict(), the analytic estimate.
  std::function<StepResult(const Plan&)> result_of;
  // Says in each limit of a plan that does not fit what would make it fit: add_cheapest_change() of
  // the tuner. Without it the finding names `zeroplan fit`.
  std::function<void(const Scenario&, StepResult&)> add_change = nullptr;
  DsConfig config;
  Scenario scenario;                 // its ds_config is not looked at
  std::optional<std::int64_t> gpus;  // of the job, where no cluster is said
  std::optional<Launcher> launcher;
  std::optional<RunTask> task;
};

struct SkippedRule {
  std::string code;
  Needs missing;
  Phrase reason;  // why there is no plan although model and cluster are known; else empty
};

struct LintReport {
  std::vector<Finding> findings;
  std::vector<SkippedRule> skipped;
  ConfigStyle style = ConfigStyle::native;
  bool style_was_said = false;
};

// Throws InputError for a model, cluster or version that cannot be read, and for degrees that do
// not divide the GPUs. A run that cannot be planned skips the rules that need a plan.
LintReport lint(const LintRequest& request);

// The table of all rules, those of model/knobs first.
std::vector<RuleInfo> lint_rules();
// The text of docs/lint.md.
std::string lint_rules_markdown();
// "model (--model)", one for each bit; joined by " and ".
Phrase describe(Needs needs);

}  // namespace zeroplan
