// Shared by the rules of model/lint: what is known of the run. Not for other code.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "model/knobs/rule_view.hpp"
#include "model/lint/launch.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan::rules {

// Pointers are null where that is not known; a rule runs only when all it needs is.
struct Run {
  const View& file;
  const Scenario& scenario;
  const Cluster* cluster = nullptr;
  const Model* model = nullptr;
  const Plan* plan = nullptr;
  const StepResult* prediction = nullptr;                   // with the plan
  const Diagnostic* refusal = nullptr;                      // why there is no plan
  const std::function<StepResult(const Plan&)>& result_of;  // LintRequest's
  std::optional<Launcher> launcher;
  std::optional<RunTask> task;
  std::optional<Version> release;  // of DeepSpeed, where it was said
  bool frontend_was_said = false;

  bool is_trainer() const { return file.context().style == ConfigStyle::hf_trainer; }
  std::optional<std::int64_t> said_integer(ScenarioKey key) const;
  std::optional<std::string> said_text(ScenarioKey key) const;
  // "bf16", "fp16", "fp32": the file's, else what was said; empty where neither says.
  std::string format() const;
  // An integer of the file after "auto" and defaults; nothing where "auto" needs a plan.
  std::optional<std::int64_t> size(Knob knob) const;
};

struct RunRule {
  RuleInfo info;
  void (*check)(const Run&, Report&);
};

std::span<const RunRule> hardware_rules();  // rules_hardware.cpp: GPUs, nodes, launcher, release
std::span<const RunRule> model_rules();     // rules_model.cpp: sizes against the model's
std::span<const RunRule> script_rules();    // rules_script.cpp: what the script was told
std::span<const RunRule> plan_rules();      // rules_plan.cpp: what the prediction says
std::span<const RunRule> trainer_rules();   // rules_trainer.cpp: what TRL's trainers refuse

}  // namespace zeroplan::rules
