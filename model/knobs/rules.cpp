#include "model/knobs/rules.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/check.hpp"
#include "model/knobs/rule_view.hpp"

namespace zeroplan {
namespace {

std::array<std::span<const rules::Rule>, 10> groups() {
  return {rules::file_rules(),
          rules::reader_rules(),
          rules::batch_rules(),
          rules::precision_rules(),
          rules::zero_rules(),
          rules::offload_rules(),
          rules::nvme_rules(),
          rules::optimizer_rules(),
          rules::effect_rules(),
          rules::habit_rules()};
}

std::vector<Finding> findings_of(const DsConfig& config,
                                 const RuleContext& context,
                                 bool with_advice) {
  ZP_CHECK(context.world_size % (context.tensor_parallel * context.sequence_parallel *
                                 context.pipeline_parallel) ==
               0,
           "the degrees do not divide the number of GPUs");
  std::vector<Finding> findings;
  const rules::View view(config, context);
  for (const auto group : groups()) {
    for (const rules::Rule& rule : group) {
      if (rule.info.use == RuleUse::advice && !with_advice) continue;
      if (rule.info.needs.contains(kNeedsRanks) && !context.ranks_known) continue;
      rules::Report report(rule.info, findings);
      rule.check(view, report);
    }
  }
  return findings;
}

}  // namespace

Phrase filled(std::string_view format, const std::vector<Phrase>& arguments) {
  Phrase text;
  std::string piece;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const bool slot = format[i] == '{' && i + 2 < format.size() && format[i + 2] == '}' &&
                      std::isdigit(static_cast<unsigned char>(format[i + 1])) != 0;
    if (!slot) {
      piece += format[i];
      continue;
    }
    const std::size_t number = static_cast<std::size_t>(format[i + 1] - '0');
    ZP_CHECK(number < arguments.size(), "a rule's text lacks an argument");
    text += piece.c_str();
    text += arguments[number];
    piece.clear();
    i += 2;
  }
  return text + piece.c_str();
}

Finding finding_of(const RuleInfo& info,
                   std::string_view pointer,
                   std::vector<Phrase> arguments,
                   int text,
                   Severity severity) {
  ZP_CHECK(text >= 0 && static_cast<std::size_t>(text) < info.texts.size(), "a rule lacks a text");
  const RuleText& row = *(info.texts.begin() + text);
  Finding finding{severity,
                  std::string(pointer),
                  std::string(info.code),
                  filled(row.message, arguments),
                  filled(row.fix, arguments),
                  text,
                  {}};
  finding.arguments = std::move(arguments);
  return finding;
}

std::vector<RuleInfo> knob_rules() {
  std::vector<RuleInfo> infos;
  for (const RuleInfo& note : rules::reading_notes()) infos.push_back(note);
  for (const auto group : groups()) {
    for (const rules::Rule& rule : group) {
      // A rule may only raise the severity of a note of the same code.
      const bool known = std::any_of(infos.begin(), infos.end(), [&](const RuleInfo& info) {
        return info.code == rule.info.code;
      });
      if (!known) infos.push_back(rule.info);
    }
  }
  return infos;
}

std::vector<Finding> startup_findings(const DsConfig& config, const RuleContext& context) {
  return findings_of(config, context, false);
}

void tidy(std::vector<Finding>& findings) {
  std::vector<Finding> kept;
  for (Finding& finding : findings) {
    // What came first has the severity for this run.
    const bool said = std::any_of(kept.begin(), kept.end(), [&](const Finding& found) {
      return found.pointer == finding.pointer &&
             (found.code == finding.code || found.message == finding.message);
    });
    if (!said) kept.push_back(std::move(finding));
  }
  std::stable_sort(kept.begin(), kept.end(), [](const Finding& a, const Finding& b) {
    return a.severity < b.severity;
  });
  findings = std::move(kept);
}

std::vector<Finding> all_findings(const DsConfig& config, const RuleContext& context) {
  std::vector<Finding> findings = findings_of(config, context, true);
  findings.insert(findings.end(), config.notes().begin(), config.notes().end());
  tidy(findings);
  return findings;
}

}  // namespace zeroplan
