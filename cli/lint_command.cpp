// zeroplan lint: what is wrong with a ds_config.json, with pointer, reason and fix.
#include <algorithm>
#include <map>
#include <ostream>

#include "base/diagnostic.hpp"
#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/lint_formats.hpp"
#include "cli/table.hpp"
#include "model/hardware/cluster.hpp"
#include "model/lint/io_lint_report.hpp"
#include "model/lint/lint.hpp"
#include "model/lint/place.hpp"
#include "model/lint/subject.hpp"
#include "simulator/simulate.hpp"
#include "tuner/remedies.hpp"

namespace zeroplan::cli {
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
    std::vector<std::vector<Phrase>> rows;
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
                                 {"needs", describe(rule.needs).english()},
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

void print_findings(const std::string& file,
                    const LintReport& report,
                    std::ostream& out,
                    const Translation& words) {
  const auto rules = rules_by_code();
  for (const Finding& finding : report.findings) {
    const RuleInfo& rule = rules.at(finding.code);
    out << words.filled(std::string(name(finding.severity)) + ": {=}: {=}: {=} [{=}]",
                        {printable(file),
                         finding.pointer.empty() ? "/" : printable(finding.pointer),
                         words.text(printable_values(finding.message)),
                         finding.code})
        << "\n";
    // What is only worth knowing shall not take more lines than what is wrong.
    if (finding.severity != Severity::info) {
      out << words.text(phrase("  cost: {}", rule.cost)) << "\n";
    }
    if (finding.fix.empty()) continue;
    out << words.text(phrase("  fix: {}", printable_values(finding.fix))) << "\n";
  }
  if (report.findings.empty())
    out << words.text(phrase("{}: nothing to report\n", printable(file)));
}

// One line for everything that lacks the same.
void print_skipped(const LintReport& report, std::ostream& out, const Translation& words) {
  std::map<Phrase, std::string> by_reason;
  for (const SkippedRule& rule : report.skipped) {
    const Phrase reason =
        rule.reason.empty()
            ? phrase("without {}", describe(rule.missing))
            : phrase("without {}", phrase("{} ({})", describe(rule.missing), rule.reason));
    std::string& codes = by_reason[reason];
    codes += (codes.empty() ? "" : ", ") + rule.code;
  }
  for (const auto& [reason, codes] : by_reason) {
    out << words.text(phrase("not checked {}: {}\n", reason, codes));
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
  throw InputError(
      {kCommandLine, "--" + option, phrase("one of {}", allowed), in_quotes(*said), ""});
}

// --- one file or several

enum class Format { text, json, github, sarif };
constexpr EnumNames<Format, 4> kFormatNames{{"text", "json", "github", "sarif"}};

Format format_of(const Arguments& arguments) {
  const std::optional<Format> said = choice(arguments, "format", kFormatNames);
  if (!arguments.json) return said.value_or(Format::text);
  if (said && *said != Format::json) {
    throw InputError({kCommandLine, "--format", "either --json or --format", "both", ""});
  }
  return Format::json;
}

// The scenario's ds_config, where no FILE is said.
LintSubject subject_of(const Scenario& scenario) {
  if (scenario.find(ScenarioKey::ds_config) != nullptr) return lint_subject_of(scenario);
  throw InputError({kCommandLine,
                    "FILE",
                    "a ds_config.json",
                    "nothing",
                    "zeroplan lint --rules lists what is checked"});
}

// Judges files one after the other and writes each in the format; what cannot be read is a finding
// of its own where several files, or a program, are told.
class Judge {
 public:
  Judge(const Arguments& arguments, Streams streams)
      : streams_(streams),
        words_(arguments.language),
        format_(format_of(arguments)),
        several_(arguments.positionals.size() > 1) {
    request_.scenario = scenario_of(arguments);
    request_.gpus = arguments.integer("gpus", 1, kMostGpus);
    request_.launcher = choice(arguments, "launcher", kLauncherNames);
    request_.task = choice(arguments, "task", kRunTaskNames);
  }

  void judge_file(const std::string& path) {
    try {
      judge(read_lint_subject(path));
    } catch (const InputError& error) {
      const bool of_the_file = error.diagnostics().front().file == path;
      const bool alone = !several_ && (format_ == Format::text || format_ == Format::json);
      if (!of_the_file || alone) throw;
      keep(path, error);
    }
  }

  void judge(const LintSubject& subject) {
    request_.config = subject.config;
    const LintReport report = lint(request_);
    for (const Finding& finding : report.findings) {
      any_error_ = any_error_ || finding.severity == Severity::error;
      placed_.push_back({subject.name, place_of(subject.root, finding.pointer), finding});
    }
    if (format_ == Format::text) {
      print_findings(subject.name, report, streams_.out, words_);
      print_skipped(report, streams_.out, words_);
    } else if (format_ == Format::json) {
      Json document = Json::object();
      if (several_) document["file"] = subject.name;
      const Json judged = to_json(report, subject.root);
      for (const auto& [key, value] : judged.members()) document[key] = value;
      documents_.push_back(std::move(document));
    }
  }

  // Writes what stands for all files together, and says how it went.
  int finish() {
    if (format_ == Format::github) print_github(placed_, streams_.out);
    if (format_ == Format::sarif) print_sarif(placed_, streams_.out);
    if (format_ == Format::json) {
      const Json document =
          several_ ? Json::object({{"schema", "zeroplan.lint/1"}, {"files", documents_}})
                   : documents_.items().front();
      streams_.out << document.dump(2) << "\n";
    }
    return bad_input_ ? kBadInput : any_error_ ? kAnswerIsNo : kDone;
  }

 private:
  void keep(const std::string& path, const InputError& error) {
    bad_input_ = true;
    streams_.log << words_.text(error.text()) << "\n";
    for (const Diagnostic& problem : error.diagnostics()) placed_.push_back(placed(problem));
    documents_.push_back(Json::object({{"file", path}, {"error", error_json(error)}}));
  }

  Streams streams_;
  Translation words_;
  Format format_;
  bool several_;
  LintRequest request_{.result_of = [](const Plan& plan) { return simulator::simulate(plan); },
                       .add_change = tuner::add_cheapest_change};
  std::vector<PlacedFinding> placed_;
  Json documents_ = Json::array();
  bool any_error_ = false;
  bool bad_input_ = false;
};

}  // namespace

int run_lint(const Arguments& arguments, Streams streams) {
  if (arguments.has("rules")) return print_rules(arguments, streams);
  if (arguments.has("markdown")) {
    throw InputError({kCommandLine, "--markdown", "--rules with it", "no --rules", ""});
  }
  if (arguments.positionals.empty()) {
    const LintSubject subject = subject_of(scenario_of(arguments));
    Judge judge(arguments, streams);
    judge.judge(subject);
    return judge.finish();
  }
  if (arguments.flags.find(ScenarioKey::ds_config) != nullptr) {
    throw InputError({kCommandLine, "--ds-config", "one file", "FILE and --ds-config", ""});
  }
  Judge judge(arguments, streams);
  for (const std::string& path : arguments.positionals) judge.judge_file(path);
  return judge.finish();
}

}  // namespace zeroplan::cli
