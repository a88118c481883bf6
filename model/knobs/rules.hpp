// The rules about a ds_config.json that need no hardware and no model: what makes DeepSpeed refuse
// it, what DeepSpeed ignores in it, and what it costs. In: what a file says, and the run around it.
// Out: findings with stable codes. model/lint adds the rules that look at GPU, model and plan.
//
// Under the Trainer "auto" is never judged: it fills it consistently. Defaults count where they
// decide.
#pragma once

#include <string_view>
#include <vector>

#include "model/knobs/ds_config.hpp"
#include "model/knobs/finding.hpp"
#include "model/knobs/rule_context.hpp"
#include "model/knobs/rule_info.hpp"

namespace zeroplan {

// The table: notes of reading, then rules, in the order of the documentation.
std::vector<RuleInfo> knob_rules();

// Everything that stops DeepSpeed at the start (severity error), and what it silently ignores
// although the user asked for it (warning).
std::vector<Finding> startup_findings(const DsConfig& config, const RuleContext& context);

// The notes of reading and the findings of all rules that the context lets judge, errors first,
// without what is said twice.
std::vector<Finding> all_findings(const DsConfig& config, const RuleContext& context);

// Errors first, what is said twice once.
void tidy(std::vector<Finding>& findings);

}  // namespace zeroplan
