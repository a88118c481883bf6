// The table of rules as text: docs/lint.md.
#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/phrase_list.hpp"
#include "model/lint/lint.hpp"

namespace zeroplan {
namespace {

struct NeedName {
  Needs need;
  std::string_view name;
};
constexpr std::array kNeedNames = {
    NeedName{kNeedsRanks, "the number of GPUs (--gpus or --cluster)"},
    NeedName{kNeedsCluster, "the cluster (--cluster)"},
    NeedName{kNeedsModel, "the model (--model)"},
    NeedName{kNeedsWorkload,
             "the script's arguments (--mbs, --gas, --precision, --optimizer, --method, --ckpt)"},
    NeedName{kNeedsPlan, "a plan (--model and --cluster)"},
    NeedName{kNeedsTask, "what the run does (--task)"},
    NeedName{kNeedsLauncher, "what starts it (--launcher)"},
    NeedName{kNeedsRelease, "the release of DeepSpeed (--deepspeed)"}};

std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// The different ones of a rule's texts, for one cell.
template <typename Part>
std::string joined(const RuleInfo& rule, Part part) {
  std::vector<std::string_view> seen;
  std::string text;
  for (const RuleText& row : rule.texts) {
    const std::string_view one = part(row);
    if (one.empty() || std::find(seen.begin(), seen.end(), one) != seen.end()) continue;
    seen.push_back(one);
    text += (text.empty() ? "" : "<br>") + cell(one);
  }
  return text;
}

constexpr std::string_view kIntroduction =
    R"(# Rules of `zeroplan lint`

Generated from the tables in model/knobs/rules_*.cpp and model/lint/rules_*.cpp; `UPDATE_GOLDEN=1` and the unit
tests write it anew.

- **error**: the run does not start, stops on its way, or trains something else than was meant. **warning**: it runs, and
  something that was asked for does not happen or costs much. **info**: worth knowing. A rule may be milder in one run.
- **Needs**: what must be said besides the file; where it is missing, the rule is listed as not checked.
- {0}, {1}, ... stand for what differs from file to file. Sources are files under `deepspeed/` and the symbol there,
  files of transformers and accelerate, or issues (`DeepSpeed#1` where nothing else is said).
- `zeroplan lint --rules` prints the table, `--rules --json` as a document.

| Code | Severity | What should hold | What it costs | Finding | Fix | Needs | Source |
|---|---|---|---|---|---|---|---|
)";

}  // namespace

Phrase describe(Needs needs) {
  std::vector<std::string_view> names;
  for (const NeedName& row : kNeedNames) {
    if (needs.contains(row.need)) names.push_back(row.name);
  }
  return phrase_list(names, " and ");
}

std::string lint_rules_markdown() {
  std::string text(kIntroduction);
  for (const RuleInfo& rule : lint_rules()) {
    const std::string findings = joined(rule, [](const RuleText& row) { return row.message; });
    const std::string fixes = joined(rule, [](const RuleText& row) { return row.fix; });
    text += "| `" + std::string(rule.code) + "` | " + std::string(name(rule.severity)) + " | " +
            cell(rule.summary) + " | " + cell(rule.cost) + " | " + findings + " | " + fixes +
            " | " + cell(describe(rule.needs).english()) + " | `" + cell(rule.source) + "` |\n";
  }
  return text;
}

}  // namespace zeroplan
