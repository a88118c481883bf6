// zeroplan lint: what is wrong with a ds_config.json, with pointer, reason and fix.
#include <algorithm>
#include <map>
#include <ostream>

#include "cli/commands.hpp"
#include "cli/table.hpp"
#include "model/diagnostic.hpp"
#include "model/hardware/cluster.hpp"
#include "model/lint/lint.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan {
namespace {

// --- the table of rules

int print_rules(const Arguments& arguments, Streams streams) {
  if (arguments.has("markdown")) {
    if (arguments.json) {
      throw InputError({kCommandLine, "--markdown", "either --json or --markdown", "both", ""});
    }
    streams.out << lint_rules_markdown();
    return kDone;
  }
  if (!arguments.json) {
    std::vector<std::vector<std::string>> rows;
    for (const RuleInfo& rule : lint_rules()) {
      rows.push_back(
          {std::string(rule.code), std::string(name(rule.severity)), std::string(rule.summary)});
    }
    streams.out << table(
        {{"code"}, {"severity"}, {"what should hold"}}, rows, Translation(arguments.language));
    return kDone;
  }
  Json list = Json::array();
  for (const RuleInfo& rule : lint_rules()) {
    Json texts = Json::array();
    for (const RuleText& text : rule.texts) {
      texts.push_back(Json::object({{"message", text.message}, {"fix", text.fix}}));
    }
    list.push_back(Json::object({{"code", rule.code},
                                 {"severity", name(rule.severity)},
                                 {"summary", rule.summary},
                                 {"cost", rule.cost},
                                 {"texts", texts},
                                 {"needs", describe(rule.needs)},
                                 {"source", rule.source}}));
  }
  streams.out << Json::object({{"schema", "zeroplan.lint_rules/1"}, {"rules", list}}).dump(2)
              << "\n";
  return kDone;
}

// --- one file

std::map<std::string, RuleInfo> rules_by_code() {
  std::map<std::string, RuleInfo> rules;
  for (const RuleInfo& rule : lint_rules()) rules[std::string(rule.code)] = rule;
  return rules;
}

Json report_json(const LintReport& report) {
  const auto rules = rules_by_code();
  Json findings = Json::array();
  for (const Finding& finding : report.findings) {
    findings.push_back(Json::object({{"severity", name(finding.severity)},
                                     {"pointer", finding.pointer},
                                     {"code", finding.code},
                                     {"message", finding.message},
                                     {"cost", rules.at(finding.code).cost},
                                     {"fix", finding.fix}}));
  }
  Json skipped = Json::array();
  for (const SkippedRule& rule : report.skipped) {
    skipped.push_back(Json::object(
        {{"code", rule.code}, {"missing", describe(rule.missing)}, {"reason", rule.reason}}));
  }
  return Json::object({{"schema", "zeroplan.lint/1"},
                       {"frontend", report.style == ConfigStyle::native ? "native" : "hf-trainer"},
                       {"findings", findings},
                       {"skipped", skipped}});
}

void print_findings(const std::string& file,
                    const LintReport& report,
                    std::ostream& out,
                    const Translation& words) {
  const auto rules = rules_by_code();
  for (const Finding& finding : report.findings) {
    const RuleInfo& rule = rules.at(finding.code);
    const RuleText& text = *(rule.texts.begin() + finding.text);
    std::vector<std::string> arguments;  // keys and values of the file
    for (const std::string& argument : finding.arguments) arguments.push_back(printable(argument));
    out << words.filled(std::string(name(finding.severity)) + ": {=}: {=}: {=} [{=}]",
                        {printable(file),
                         finding.pointer.empty() ? "/" : printable(finding.pointer),
                         words.filled(text.message, arguments),
                         finding.code})
        << "\n";
    // What is only worth knowing shall not take more lines than what is wrong.
    if (finding.severity != Severity::info) {
      out << words.text("  cost: " + std::string(rule.cost)) << "\n";
    }
    if (finding.fix.empty()) continue;
    out << "  " << words.filled("fix: {=}", {words.filled(text.fix, arguments)}) << "\n";
  }
  if (report.findings.empty()) out << words.text(printable(file) + ": nothing to report\n");
}

// One line for everything that lacks the same.
void print_skipped(const LintReport& report, std::ostream& out, const Translation& words) {
  std::map<std::string, std::string> by_reason;
  for (const SkippedRule& rule : report.skipped) {
    const std::string reason =
        "without " + describe(rule.missing) + (rule.reason.empty() ? "" : " (" + rule.reason + ")");
    std::string& codes = by_reason[reason];
    codes += (codes.empty() ? "" : ", ") + rule.code;
  }
  for (const auto& [reason, codes] : by_reason) {
    out << words.text("not checked " + reason + ": " + codes + "\n");
  }
}

template <typename Enum, std::size_t N>
std::optional<Enum> choice(const Arguments& arguments,
                           const std::string& option,
                           const EnumNames<Enum, N>& names) {
  const auto said = arguments.text(option);
  if (!said) return std::nullopt;
  if (const auto found = find(names, std::string_view(*said))) return found;
  std::string allowed;
  for (const std::string_view one : names.names)
    allowed += (allowed.empty() ? "" : ", ") + std::string(one);
  throw InputError({kCommandLine, "--" + option, "one of " + allowed, in_quotes(*said), ""});
}

// The file that is meant: the positional, else the scenario's ds_config.
struct Subject {
  std::string name;
  DsConfig config;
};

Subject subject_of(const Arguments& arguments, const Scenario& scenario) {
  const Said* said = scenario.find(ScenarioKey::ds_config);
  if (!arguments.positionals.empty()) {
    if (arguments.flags.find(ScenarioKey::ds_config) != nullptr) {
      throw InputError({kCommandLine, "--ds-config", "one file", "FILE and --ds-config", ""});
    }
    return {arguments.positionals.front(), read_ds_config(arguments.positionals.front())};
  }
  if (said == nullptr) {
    throw InputError({kCommandLine,
                      "FILE",
                      "a ds_config.json",
                      "nothing",
                      "zeroplan lint --rules lists what is checked"});
  }
  return {said->value.is_string() ? said->value.as_string() : said->origin.file,
          read_ds_config_of(*said)};
}

}  // namespace

int run_lint(const Arguments& arguments, Streams streams) {
  if (arguments.has("rules")) return print_rules(arguments, streams);
  if (arguments.has("markdown")) {
    throw InputError({kCommandLine, "--markdown", "--rules with it", "no --rules", ""});
  }
  LintRequest request;
  request.scenario = scenario_of(arguments);
  const Subject subject = subject_of(arguments, request.scenario);
  request.config = subject.config;
  request.gpus = arguments.integer("gpus", 1, kMostGpus);
  request.launcher = choice(arguments, "launcher", kLauncherNames);
  request.task = choice(arguments, "task", kRunTaskNames);
  const LintReport report = lint(request);
  if (arguments.json) {
    streams.out << report_json(report).dump(2) << "\n";
  } else {
    const Translation words(arguments.language);
    print_findings(subject.name, report, streams.out, words);
    print_skipped(report, streams.out, words);
  }
  const bool any_error =
      std::any_of(report.findings.begin(), report.findings.end(), [](const Finding& finding) {
        return finding.severity == Severity::error;
      });
  return any_error ? kAnswerIsNo : kDone;
}

}  // namespace zeroplan
