// A ds_config.json as lint() judges it, with the document that knows its lines.
#pragma once

#include <string>

#include "base/json.hpp"
#include "model/knobs/ds_config.hpp"
#include "model/plan/scenario.hpp"

namespace zeroplan {

struct LintSubject {
  std::string name;  // of the file, for messages
  Json root;
  DsConfig config;
};

// Throws InputError for a file that cannot be read.
LintSubject read_lint_subject(const std::string& path);
// The ds_config that a scenario names or holds. Precondition: it has one. Throws InputError.
LintSubject lint_subject_of(const Scenario& scenario);

}  // namespace zeroplan
