#include "cli/lint_formats.hpp"

#include <algorithm>
#include <ostream>

#include "model/lint/lint.hpp"

namespace zeroplan::cli {
namespace {

// --- GitHub

// What ends a command's text or one of its properties.
std::string escaped(std::string_view text, std::string_view special) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    if (special.find(c) == std::string_view::npos) {
      result += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    result += '%';
    result += kHex[byte >> 4];
    result += kHex[byte & 15];
  }
  return result;
}

std::string property(std::string_view text) { return escaped(printable(text), "%\r\n:,"); }

std::string whole_text(const Finding& finding) {
  std::string text = finding.pointer.empty() ? "" : finding.pointer + ": ";
  text += finding.message;
  if (!finding.fix.empty()) text += "\nfix: " + finding.fix.english();
  return text;
}

const char* github_level(Severity severity) {
  switch (severity) {
    case Severity::error:
      return "error";
    case Severity::warning:
      return "warning";
    case Severity::info:
      return "notice";
  }
  return "notice";
}

// --- SARIF

const char* sarif_level(Severity severity) {
  return severity == Severity::info ? "note" : github_level(severity);
}

// A path as a URI reference: an absolute one as file://.
std::string uri(std::string_view path) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string text = path.starts_with('/') ? "file://" : "";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool letter = (byte | 32) >= 'a' && (byte | 32) <= 'z';
    const bool digit = byte >= '0' && byte <= '9';
    if (letter || digit || std::string_view("-._~/").find(c) != std::string_view::npos) {
      text += c;
    } else {
      text += '%';
      text += kHex[byte >> 4];
      text += kHex[byte & 15];
    }
  }
  return text;
}

Json sarif_text(const std::string& text) { return Json::object({{"text", printable(text)}}); }

Json rules_of(const std::vector<PlacedFinding>& findings, std::vector<std::string>& codes) {
  Json rules = Json::array();
  const std::vector<RuleInfo> known = lint_rules();
  for (const PlacedFinding& one : findings) {
    if (std::find(codes.begin(), codes.end(), one.finding.code) != codes.end()) continue;
    codes.push_back(one.finding.code);
    const auto row = std::find_if(known.begin(), known.end(), [&](const RuleInfo& rule) {
      return rule.code == one.finding.code;
    });
    Json rule = Json::object({{"id", one.finding.code}});
    if (row != known.end()) {
      rule["shortDescription"] = sarif_text(std::string(row->summary));
      rule["fullDescription"] =
          sarif_text(std::string(row->summary) + "; otherwise: " + std::string(row->cost));
      rule["defaultConfiguration"] = Json::object({{"level", sarif_level(row->severity)}});
    } else {
      rule["shortDescription"] = sarif_text("the file can be read");
    }
    rules.push_back(rule);
  }
  return rules;
}

Json result_of(const PlacedFinding& one, const std::vector<std::string>& codes) {
  Json physical = Json::object({{"artifactLocation", Json::object({{"uri", uri(one.file)}})}});
  if (one.place.line > 0) {
    Json region = Json::object({{"startLine", one.place.line}});
    if (one.place.column > 0) region["startColumn"] = one.place.column;
    physical["region"] = region;
  }
  Json location = Json::object({{"physicalLocation", physical}});
  if (!one.finding.pointer.empty()) {
    location["logicalLocations"] = Json::array({Json::object(
        {{"fullyQualifiedName", printable(one.finding.pointer)}, {"kind", "member"}})});
  }
  const auto index = std::find(codes.begin(), codes.end(), one.finding.code) - codes.begin();
  return Json::object({{"ruleId", one.finding.code},
                       {"ruleIndex", static_cast<std::int64_t>(index)},
                       {"level", sarif_level(one.finding.severity)},
                       {"message", sarif_text(whole_text(one.finding))},
                       {"locations", Json::array({location})}});
}

}  // namespace

PlacedFinding placed(const Diagnostic& problem) {
  Finding finding;
  finding.severity = Severity::error;
  finding.code = kBadInputCode;
  finding.pointer = problem.pointer.starts_with('/') ? problem.pointer : "";
  finding.message = phrase("expected {}, got {}", problem.expected, problem.got);
  finding.fix = problem.hint;
  return {problem.file, place_of(problem), finding};
}

void print_github(const std::vector<PlacedFinding>& findings, std::ostream& out) {
  for (const PlacedFinding& one : findings) {
    out << "::" << github_level(one.finding.severity) << " file=" << property(one.file);
    if (one.place.line > 0) out << ",line=" << one.place.line;
    if (one.place.column > 0) out << ",col=" << one.place.column;
    out << ",title=" << property("zeroplan " + one.finding.code) << "::";
    // The lines of the text are meant, the file's characters are not.
    std::string text = whole_text(one.finding);
    std::string shown;
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      shown += (at == 0 ? "" : "\n") + printable(text.substr(at, end - at));
      at = end + 1;
    }
    out << escaped(shown, "%\r\n") << "\n";
  }
}

void print_sarif(const std::vector<PlacedFinding>& findings, std::ostream& out) {
  std::vector<std::string> codes;
  const Json rules = rules_of(findings, codes);
  Json results = Json::array();
  for (const PlacedFinding& one : findings) results.push_back(result_of(one, codes));
  const Json driver =
      Json::object({{"name", "zeroplan"}, {"version", ZEROPLAN_VERSION}, {"rules", rules}});
  out << Json::object({{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
                       {"version", "2.1.0"},
                       {"runs",
                        Json::array({Json::object({{"tool", Json::object({{"driver", driver}})},
                                                   {"results", results}})})}})
             .dump(2)
      << "\n";
}

}  // namespace zeroplan::cli
