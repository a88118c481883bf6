#include "model/lint/subject.hpp"

#include "model/plan/plan.hpp"

namespace zeroplan {

LintSubject read_lint_subject(const std::string& path) {
  JsonDocument document = read_json_file(path);
  DsConfig config = parse_ds_config(document);
  return {path, std::move(document.root), std::move(config)};
}

LintSubject lint_subject_of(const Scenario& scenario) {
  const ExplicitValue& said = *scenario.find(ScenarioKey::ds_config);
  if (said.value.is_string()) return read_lint_subject(said.value.as_string());
  return {said.origin.file, said.value, read_ds_config_of(said)};
}

}  // namespace zeroplan
