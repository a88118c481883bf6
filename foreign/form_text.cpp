#include "foreign/form_text.hpp"

#include <fmt/format.h>

#include "base/quoting.hpp"

namespace zeroplan::foreign {
namespace {

// YAML 1.1 wants a point in a number with an exponent.
std::string yaml_number(const Json& value) {
  std::string text = value.dump();
  const std::size_t exponent = text.find('e');
  if (value.is_integer() || exponent == std::string::npos) return text;
  if (text.find('.') > exponent) text.insert(exponent, ".0");
  return text;
}

std::string yaml_scalar_or_flow(const Json& value) {
  if (value.is_string()) return yaml_string(value.as_string());
  if (value.is_number()) return yaml_number(value);
  if (!value.is_array() && !value.is_object()) return value.dump();
  std::string text;
  for (const Json& item : value.items()) {
    text += (text.empty() ? "" : ", ") + yaml_scalar_or_flow(item);
  }
  for (const auto& [name, item] : value.members()) {
    text += (text.empty() ? "" : ", ") + yaml_string(name) + ": " + yaml_scalar_or_flow(item);
  }
  return value.is_array() ? "[" + text + "]" : "{" + text + "}";
}

std::string word_of(const Json& value) {
  if (value.is_string()) return sh_word(value.as_string());
  return value.is_object() || value.is_array() ? sh_word(value.dump()) : value.dump();
}

}  // namespace

std::string yaml_lines(const FormSettings& settings) {
  std::string text;
  for (const FormSetting& setting : settings) {
    const std::string comment = setting.comment.empty() ? "" : "  # " + setting.comment;
    text += yaml_string(setting.name) + ":";
    if (!setting.value.is_object() || setting.value.members().empty()) {
      text += " " + yaml_scalar_or_flow(setting.value) + comment + "\n";
      continue;
    }
    text += comment + "\n";
    for (const auto& [name, value] : setting.value.members()) {
      text += "  " + yaml_string(name) + ": " + yaml_scalar_or_flow(value) + "\n";
    }
  }
  return text;
}

std::string json_text(const FormSettings& settings) {
  Json object = Json::object();
  for (const FormSetting& setting : settings) object[setting.name] = setting.value;
  return object.dump(2) + "\n";
}

std::string argument_words(const FormSettings& settings, const std::string& separator) {
  std::string text;
  for (const FormSetting& setting : settings) {
    text += (text.empty() ? "" : separator) + "--" + setting.name;
    if (setting.value.is_null()) continue;
    if (!setting.value.is_array()) text += " " + word_of(setting.value);
    for (const Json& item : setting.value.items()) text += " " + word_of(item);
  }
  return text;
}

std::string override_words(const FormSettings& settings, const std::string& separator) {
  std::string text;
  for (const FormSetting& setting : settings) {
    text += (text.empty() ? "" : separator) + setting.name + "=" + word_of(setting.value);
  }
  return text;
}

}  // namespace zeroplan::foreign
