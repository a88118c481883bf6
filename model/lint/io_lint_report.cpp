#include "model/lint/io_lint_report.hpp"

#include <map>
#include <string>

#include "model/lint/place.hpp"

namespace zeroplan {
namespace {

Json position(int number) { return number > 0 ? Json(number) : Json(); }

}  // namespace

Json to_json(const LintReport& report, const Json& root) {
  std::map<std::string, std::string_view> costs;
  for (const RuleInfo& rule : lint_rules()) costs[std::string(rule.code)] = rule.cost;
  Json findings = Json::array();
  for (const Finding& finding : report.findings) {
    const Place place = place_of(root, finding.pointer);
    findings.push_back(Json::object({{"severity", name(finding.severity)},
                                     {"pointer", finding.pointer},
                                     {"line", position(place.line)},
                                     {"column", position(place.column)},
                                     {"code", finding.code},
                                     {"message", finding.message.english()},
                                     {"cost", costs.at(finding.code)},
                                     {"fix", finding.fix.english()}}));
  }
  Json skipped = Json::array();
  for (const SkippedRule& rule : report.skipped) {
    skipped.push_back(Json::object({{"code", rule.code},
                                    {"missing", describe(rule.missing).english()},
                                    {"reason", rule.reason.english()}}));
  }
  return Json::object({{"schema", "zeroplan.lint/1"},
                       {"frontend", report.style == ConfigStyle::native ? "native" : "hf-trainer"},
                       {"findings", findings},
                       {"skipped", skipped}});
}

}  // namespace zeroplan
