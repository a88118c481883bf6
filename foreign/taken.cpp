#include "foreign/taken.hpp"

#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/plan/scenario_values.hpp"

namespace zeroplan::foreign {
namespace {

// A value of YAML or JSON that is no text: what the scenario's own table takes.
Json typed_value(ScenarioKey key, const Json& value, const Origin& origin) {
  Diagnostic problem{origin.file, origin.pointer, "", "", ""};
  std::optional<Json> good = checked(info(key), value, problem);
  if (!good) throw InputError(problem);
  return *good;
}

// "${SEQ}", "$SEQ" is filled in by whoever starts the training: nobody knows it here but the
// flags.
Json checked_value(ScenarioKey key,
                   const std::string& text,
                   const Origin& origin,
                   const Meaning& meaning) {
  const bool is_variable = text.find('$') != std::string::npos;
  const auto flag = meaning.flags.find(key);
  if (is_variable && flag != meaning.flags.end()) {
    return parse_flag(info(key), flag->second, std::string(info(key).flag));
  }
  try {
    return parse_flag(info(key), text, origin.pointer);
  } catch (const InputError& error) {
    std::vector<Diagnostic> problems = error.diagnostics();
    for (Diagnostic& problem : problems) {
      problem.file = origin.file;
      problem.pointer = origin.pointer;
      if (!is_variable) continue;
      problem.hint = phrase("a variable that is not set here: say {}", info(key).flag);
    }
    throw InputError(problems);
  }
}

std::string shown(const Json& value) {
  const std::string text = text_of(value);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

}  // namespace

Origin origin_of(const Setting& setting) {
  return {setting.file,
          setting.line > 0 ? "line " + std::to_string(setting.line) + ": " + setting.name
                           : setting.name};
}

Became take(ScenarioKey key, const Json& value, const Setting& setting, Meaning& meaning) {
  const Origin origin = origin_of(setting);
  if (const ExplicitValue* before = meaning.scenario.find(key)) {
    if (text_of(before->value) == text_of(value)) {
      return {Use::taken, std::string(info(key).flag) + " " + text_of(value)};
    }
    return {Use::passed_over,
            phrase("{}: {}", before->origin.file, before->origin.pointer).english()};
  }
  const bool inline_value =
      value.is_object() || value.is_boolean() || value.is_array() || value.is_null();
  const Json checked = inline_value ? typed_value(key, value, origin)
                                    : checked_value(key, text_of(value), origin, meaning);
  meaning.scenario.set(key, checked, origin);
  return {Use::taken, std::string(info(key).flag) + " " + text_of(checked)};
}

ReadLine line_of(const Setting& setting, const Phrase& taken) {
  return {setting.file, setting.line, setting.name + ": " + shown(setting.value), taken};
}

void file_setting(const Setting& setting, const Became& became, Tool tool, Meaning& meaning) {
  const ReadLine line = line_of(setting, became.as);
  // A command with arguments of its own is written again with all that it said.
  const bool all = has_own_arguments(tool);
  if (all && !says_nothing(setting.value)) meaning.kept.push_back(setting);
  switch (became.use) {
    case Use::taken:
      meaning.read.push_back(line);
      return;
    case Use::later:
      return;
    case Use::passed_over:
      meaning.passed_over.push_back(line);
      return;
    case Use::unused:
      meaning.unused.push_back(line);
      break;
    case Use::unknown:
      meaning.unknown.push_back(line);
      break;
  }
  const bool of_launcher = setting.name.find('.') != std::string::npos;
  if (!all && !says_nothing(setting.value) && !of_launcher && tool != Tool::accelerate) {
    meaning.kept.push_back(setting);
  }
}

}  // namespace zeroplan::foreign
