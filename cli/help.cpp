#include "cli/help.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.hpp"
#include "cli/flags.hpp"

namespace zeroplan::cli {
namespace {

// The flags that most people say, most wanted first.
constexpr const char* kUsual =
    "--output|--clusters|--goal|--tokens|--sequence-length|--method|--micro-batch-size|"
    "--gradient-accumulation-steps|--ds-config|--host-memory|--network|--scenario|--json|"
    "--objective|--fix|--steps|--activation-checkpointing|--precision|--dataset";

}  // namespace

std::string_view positional_help(const CommandInfo& command, std::string_view name) {
  if (name == "MODEL") return info(ScenarioKey::model).help;
  if (name == "CLUSTER") return info(ScenarioKey::cluster).help;
  if (name == "FILE" && command.name == "explain") {
    return "a ds_config.json, a scenario, or a log of a run that failed; - for standard input";
  }
  if (name == "FILE") return "a ds_config.json; else that of the scenario";
  if (name == "LOG")
    return "the log of the run, or the folder that it writes; - for standard input";
  if (name == "LOGS") return "logs, traces, snapshots, tables, folders of autotuning results";
  if (name == "COMMAND") return "the program and its arguments, behind --";
  if (name == "MEASUREMENTS") return "files with one measurement a line";
  ZP_CHECK(name == "RECORDINGS", "an argument without a text");
  return "recordings of DeepSpeed, one JSON object a line; or a memory snapshot of PyTorch";
}

std::vector<Flag> usual_flags(const CommandInfo& command) {
  const std::vector<Flag> flags = flags_of(command);
  const auto is_own = [&](const Flag& flag) {
    return std::any_of(command.options.begin(), command.options.end(), [&](const OptionInfo& one) {
      return one.flag == flag.name;
    });
  };
  std::vector<Flag> own, others;
  for (const std::string& name : parts_of(kUsual, '|')) {
    for (const Flag& flag : flags) {
      if (flag.name == name) (is_own(flag) ? own : others).push_back(flag);
    }
  }
  for (const Flag& flag : flags) {
    const auto is_there = [&](const Flag& one) { return one.name == flag.name; };
    if (is_own(flag) && std::none_of(own.begin(), own.end(), is_there)) own.push_back(flag);
  }
  // Where there are many, both have their part of the window.
  constexpr std::size_t kOwnAtMost = 5;
  if (!others.empty() && own.size() > kOwnAtMost) own.erase(own.begin() + kOwnAtMost, own.end());
  own.insert(own.end(), others.begin(), others.end());
  return own;
}

namespace {

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

// --- all commands

struct Group {
  std::string_view title;
  bool first;  // stands in the first twenty lines
  std::array<std::string_view, 5> commands;
};

constexpr std::array kGroups = {
    Group{"Before anything is rented", true, {"fit", "tune", "simulate", "report", "plot"}},
    Group{"What is wrong", true, {"lint", "explain", "doctor"}},
    Group{"Train and measure", false, {"run", "verify", "rehearse", "watch", "profile"}},
    Group{"Measurements", false, {"import", "validate", "calibrate", "replay"}},
    Group{"What is known", false, {"models", "trace", "gpus", "knobs"}},
    Group{"For other programs", false, {"scenario", "mcp"}},
};

std::vector<const CommandInfo*> members(const Group& group) {
  std::vector<const CommandInfo*> found;
  for (const std::string_view name : group.commands) {
    if (const CommandInfo* command = command_named(name)) found.push_back(command);
  }
  return found;
}

// --- one command

constexpr std::ptrdiff_t kFirstLines = 24;  // what a small window shows

std::string heading(const CommandInfo& command, const Translation& words) {
  std::string text = usage(command) + "\n  " + words.text(command.summary) + "\n";
  const std::vector<Positional> positionals = positionals_of(command);
  if (!positionals.empty()) text += "\n";
  for (const Positional& positional : positionals) {
    text +=
        row(std::string(positional.name), words.text(positional_help(command, positional.name)));
  }
  return text;
}

std::string examples(const CommandInfo& command, const Translation& words) {
  if (command.examples.empty()) return "";
  return words.text("\nExamples:\n") + std::string(command.examples);
}

std::string whole_help(const CommandInfo& command, const Translation& words) {
  std::string text = heading(command, words);
  std::string_view group;
  for (const Flag& flag : flags_of(command)) {
    if (flag.group != group) text += words.text(phrase("\n{}:\n", flag.group));
    group = flag.group;
    std::string left(flag.name);
    if (!flag.short_name.empty()) left += ", " + std::string(flag.short_name);
    if (!flag.value.empty()) left += " " + flag.value;
    text += row(left, words.text(flag.help));
  }
  return text + examples(command, words);
}

// The examples, and as many flags as the lines hold, by their short names.
std::string first_help(const CommandInfo& command, const Translation& words) {
  std::string text = heading(command, words) + examples(command, words);
  text += words.text(phrase("\n{}:\n", "Flags"));
  const std::size_t flags = flags_of(command).size();
  constexpr std::ptrdiff_t kLinesBehind = 2;
  std::ptrdiff_t left_over =
      kFirstLines - kLinesBehind - std::count(text.begin(), text.end(), '\n');
  std::size_t shown = 0;
  for (const Flag& flag : usual_flags(command)) {
    if (left_over <= 0) break;
    const bool has_short = flag.short_name.starts_with("--");
    std::string left(has_short ? flag.short_name : flag.name);
    if (!has_short && !flag.short_name.empty()) left += ", " + std::string(flag.short_name);
    if (!flag.value.empty()) left += " " + flag.value;
    const std::string line = row(left, words.text(flag.help));
    text += line;
    left_over -= std::count(line.begin(), line.end(), '\n');
    ++shown;
  }
  return text + words.text(phrase(
                    "\n{} more flags: zeroplan help {} --all\n", flags - shown, command.name));
}

}  // namespace

std::string overview_help(const Translation& words, bool all) {
  std::string text = words.text(
      "zeroplan: will it train under DeepSpeed ZeRO, how fast, and with which ds_config.json?\n\n"
      "  zeroplan fit 10B 2x4xA800-80G\n");
  std::string others;
  for (const Group& group : kGroups) {
    if (!all && !group.first) {
      for (const CommandInfo* command : members(group)) others += " " + std::string(command->name);
      continue;
    }
    text += words.text(phrase("\n{}:\n", group.title));
    for (const CommandInfo* command : members(group)) {
      std::string line = "  " + std::string(command->name);
      line.resize(14, ' ');
      text += line + words.text(command->summary) + "\n";
    }
  }
  if (!all) text += words.text("\nOthers, in zeroplan help --all:\n ") + others + "\n";
  return text + words.text("\nThe flags of one: zeroplan help COMMAND\n");
}

std::string command_help(const CommandInfo& command, const Translation& words, bool all) {
  const std::string whole = whole_help(command, words);
  if (all || std::count(whole.begin(), whole.end(), '\n') <= kFirstLines) return whole;
  return first_help(command, words);
}

}  // namespace zeroplan::cli
