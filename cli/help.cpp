#include "cli/help.hpp"

#include "cli/flags.hpp"

namespace zeroplan {
namespace {

std::string_view positional_help(const CommandInfo& command, std::string_view name) {
  if (name == "MODEL") return info(ScenarioKey::model).help;
  if (name == "CLUSTER") return info(ScenarioKey::cluster).help;
  if (name == "FILE" && command.name == "explain") {
    return "a ds_config.json, a scenario, or a log with an out-of-memory error";
  }
  if (name == "FILE") return "a ds_config.json; else that of the scenario";
  if (name == "LOGS") return "logs, traces, snapshots, tables, folders of autotuning results";
  if (name == "COMMAND") return "the program and its arguments, behind --";
  if (name == "MEASUREMENTS") return "files with one measurement a line";
  return "recordings of DeepSpeed, one JSON object a line";
}

// "  left        right", the right part in its own column.
std::string row(const std::string& left, std::string_view right) {
  constexpr std::size_t kColumn = 34;
  std::string line = "  " + left;
  if (line.size() + 2 > kColumn) line += "\n";
  const std::size_t start = line.rfind('\n') == std::string::npos ? 0 : line.rfind('\n') + 1;
  line.resize(start + kColumn, ' ');
  return line + std::string(right) + "\n";
}

std::string usage(const CommandInfo& command) {
  std::string text = "zeroplan " + std::string(command.name);
  for (const Positional& positional : positionals_of(command)) {
    const std::string name = std::string(positional.name) + (positional.many ? "..." : "");
    text += positional.required ? " " + name : " [" + name + "]";
  }
  return text + " [flags]";
}

}  // namespace

std::string overview_help(const Translation& words) {
  std::string text = words.text(
      "zeroplan: will it train under DeepSpeed ZeRO, how fast, and with which ds_config.json?\n\n"
      "usage: zeroplan COMMAND ...        zeroplan help COMMAND        zeroplan --version\n\n");
  for (const CommandInfo& command : commands()) {
    std::string line = "  " + std::string(command.name);
    line.resize(14, ' ');
    text += line + words.text(command.summary) + "\n";
  }
  return text + words.text("\nexample: zeroplan fit 10B 2x4xA800-80G\n");
}

std::string command_help(const CommandInfo& command, const Translation& words) {
  std::string text = usage(command) + "\n  " + words.text(command.summary) + "\n";
  const std::vector<Positional> positionals = positionals_of(command);
  if (!positionals.empty()) text += "\n";
  for (const Positional& positional : positionals) {
    text +=
        row(std::string(positional.name), words.text(positional_help(command, positional.name)));
  }
  std::string_view group;
  for (const Flag& flag : flags_of(command)) {
    if (flag.group != group) text += words.text("\n" + std::string(flag.group) + ":\n");
    group = flag.group;
    std::string left(flag.name);
    if (!flag.short_name.empty()) left += ", " + std::string(flag.short_name);
    if (!flag.value.empty()) left += " " + flag.value;
    text += row(left, words.text(flag.help));
  }
  if (!command.examples.empty())
    text += words.text("\nExamples:\n") + std::string(command.examples);
  return text;
}

}  // namespace zeroplan
