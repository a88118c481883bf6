#include "model/plan/scenario_values.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/described.hpp"
#include "base/phrase_list.hpp"
#include "base/plain_text.hpp"
#include "model/plan/spellings.hpp"

namespace zeroplan {
namespace {

std::vector<std::string_view> split_choices(std::string_view choices) {
  std::vector<std::string_view> parts;
  while (!choices.empty()) {
    const std::size_t bar = choices.find('|');
    parts.push_back(choices.substr(0, bar));
    choices = bar == std::string_view::npos ? "" : choices.substr(bar + 1);
  }
  return parts;
}

Phrase expected_choice(std::string_view choices) {
  return phrase("one of {}", phrase_list(split_choices(choices)));
}

// A whole number also where it was written 1e3, as people do in JSON.
std::optional<std::int64_t> whole_number(const Json& value) {
  if (value.is_integer()) return value.as_integer();
  if (!value.is_number()) return std::nullopt;
  const double real = value.as_number();
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (real != static_cast<double>(static_cast<std::int64_t>(std::clamp(real, -kExact, kExact)))) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(real);
}

Phrase expected_integer(const ScenarioKeyInfo& key) {
  return phrase("a whole number from {} to {}", key.min, key.max);
}

std::optional<Json> checked_integer(const ScenarioKeyInfo& key,
                                    const Json& value,
                                    Diagnostic& problem) {
  const auto number = whole_number(value);
  if (number && *number >= key.min && *number <= key.max) return Json(*number);
  problem.expected = expected_integer(key);
  return std::nullopt;
}

// Whether the word is a known one of something that is not modelled; says so.
bool is_not_modelled(ScenarioKey key, std::string_view word, Diagnostic& problem) {
  const std::string_view reason = why_not_modelled(key, word);
  if (reason.empty()) return false;
  problem.got = phrase("{}, which is not modelled", in_quotes(word));
  problem.hint = reason;
  return true;
}

std::optional<Json> checked_choice(const ScenarioKeyInfo& key,
                                   const Json& value,
                                   Diagnostic& problem) {
  problem.expected = expected_choice(key.choices);
  const std::string word = value.is_boolean()  ? std::string(value.as_boolean() ? "true" : "false")
                           : value.is_string() ? value.as_string()
                                               : std::string();
  if (const auto meant = meaning_of(key.key, key.choices, word)) return Json(std::string(*meant));
  if (value.is_string() && !is_not_modelled(key.key, word, problem)) {
    problem.hint = did_you_mean(word, split_choices(key.choices));
  }
  return std::nullopt;
}

// A method is a word, or {"word": {settings}}; what else is wrong with it resolve() finds.
std::optional<Json> checked_method(const Json& value, Diagnostic& problem) {
  constexpr std::string_view kMethods = "full|lora|qlora";
  problem.expected = "full, lora, qlora, or {\"lora\": {...}}";
  const bool one_key = value.is_object() && value.members().size() == 1;
  if (!one_key && !(value.is_string() && !value.as_string().empty())) {
    return value.is_object() ? std::optional(value) : std::nullopt;
  }
  const std::string& word = value.is_string() ? value.as_string() : value.members()[0].first;
  const auto meant = meaning_of(ScenarioKey::method, kMethods, word);
  if (!meant) {
    return is_not_modelled(ScenarioKey::method, word, problem) ? std::nullopt
                                                               : std::optional(value);
  }
  if (value.is_string()) return Json(std::string(*meant));
  return Json::object({{std::string(*meant), value.members()[0].second}});
}

bool is_list_of_objects(const Json& value) {
  return value.is_array() && std::all_of(value.items().begin(),
                                         value.items().end(),
                                         [](const Json& item) { return item.is_object(); });
}

// "reference", "reward=skywork-8b,cpu": the part before the first comma names the role and the
// model, those behind it how it is kept or in which format.
Json object_of_words(std::string_view text) {
  Json object = Json::object();
  const std::string_view first = text.substr(0, text.find(','));
  const std::size_t equals = first.find('=');
  object["role"] = std::string(first.substr(0, equals));
  if (equals != std::string_view::npos) object["model"] = std::string(first.substr(equals + 1));
  text.remove_prefix(std::min(first.size() + 1, text.size()));
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const bool format = word == "bf16" || word == "fp16" || word == "fp32";
    object[format ? "dtype" : "placement"] = std::string(word);
  }
  return object;
}

}  // namespace

Json objects_of_flag(std::string_view text, const std::string& file) {
  Json list = Json::array();
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.starts_with('{') && !line.starts_with('[')) {
      list.push_back(object_of_words(line));
      continue;
    }
    JsonDocument document = parse_json(std::string(line), file);
    std::vector<Diagnostic> problems = duplicate_key_problems(document);
    if (!problems.empty()) throw InputError(std::move(problems));
    if (!document.root.is_array()) {
      list.push_back(std::move(document.root));
      continue;
    }
    for (const Json& item : document.root.items()) {
      list.push_back(item.is_string() ? object_of_words(item.as_string()) : item);
    }
  }
  return list;
}

std::optional<Json> checked(const ScenarioKeyInfo& key, const Json& value, Diagnostic& problem) {
  problem.got = described(value);
  switch (key.type) {
    case ScenarioType::text:
      if (key.key == ScenarioKey::deepspeed_version && value.is_string() &&
          value.as_string().ends_with(".json")) {
        problem.expected = "DeepSpeed's version, as 0.16.4";
        problem.hint = phrase("the file is --ds-config {}", value.as_string());
        return std::nullopt;
      }
      if (value.is_string() && !value.as_string().empty()) return value;
      if (value.is_number()) return Json(value.dump());  // "torch": 2.6
      problem.expected = "a string";
      return std::nullopt;
    case ScenarioType::text_or_object:
      if (value.is_string() && has_control_character(value.as_string())) {
        problem.expected = "a name or path without control characters";
        return std::nullopt;
      }
      if (key.key == ScenarioKey::method) return checked_method(value, problem);
      if ((value.is_string() && !value.as_string().empty()) || value.is_object()) return value;
      problem.expected = "a string or an object";
      return std::nullopt;
    case ScenarioType::integer:
      return checked_integer(key, value, problem);
    case ScenarioType::tokens:
      if (value.is_string()) {
        const auto tokens = parse_tokens(value.as_string());
        if (tokens && *tokens >= key.min && *tokens <= key.max) return Json(*tokens);
        problem.expected = phrase("{}, or 4k", expected_integer(key));
        return std::nullopt;
      }
      return checked_integer(key, value, problem);
    case ScenarioType::boolean:
      if (value.is_boolean()) return value;
      problem.expected = "true or false";
      return std::nullopt;
    case ScenarioType::choice:
      return checked_choice(key, value, problem);
    case ScenarioType::objects:
      if (is_list_of_objects(value)) return value;
      problem.expected = "an array of objects such as {\"role\": \"reference\"}";
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace zeroplan
