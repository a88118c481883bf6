#include "model/knobs/ds_config_spelling.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "base/diagnostic.hpp"
#include "base/written_names.hpp"

namespace zeroplan::spelling {
namespace {

std::string trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return std::string(text);
}

std::string bound_text(double bound) {
  if (bound == std::floor(bound) && std::fabs(bound) < 1e15) {
    return std::to_string(static_cast<std::int64_t>(bound));
  }
  return Json(bound).dump();
}

// Source of the number formats: deepspeed/runtime/config.py:DtypeEnum.
struct Synonym {
  std::string_view other;
  std::string_view name;
};
constexpr std::array kSynonyms = {Synonym{"float16", "fp16"},
                                  Synonym{"half", "fp16"},
                                  Synonym{"torch.float16", "fp16"},
                                  Synonym{"bfloat16", "bf16"},
                                  Synonym{"torch.bfloat16", "bf16"},
                                  Synonym{"float32", "fp32"},
                                  Synonym{"float", "fp32"},
                                  Synonym{"torch.float32", "fp32"}};

}  // namespace

std::string lower(std::string_view text) { return folded(text, ""); }

std::optional<Json> number_in(std::string_view quoted) {
  const std::string text = trimmed(quoted);
  std::int64_t integer = 0;
  const char* end = text.data() + text.size();
  const auto whole = std::from_chars(text.data(), end, integer);
  if (whole.ec == std::errc() && whole.ptr == end) return Json(integer);
  double real = 0.0;
  const auto decimal = std::from_chars(text.data(), end, real);
  if (decimal.ec != std::errc() || decimal.ptr != end || !std::isfinite(real)) return std::nullopt;
  return Json(real);
}

std::optional<bool> boolean_in(std::string_view quoted) {
  // The words that pydantic takes for booleans.
  constexpr std::array<std::string_view, 6> kTrue = {"true", "1", "yes", "y", "on", "t"};
  constexpr std::array<std::string_view, 6> kFalse = {"false", "0", "no", "n", "off", "f"};
  const std::string text = lower(trimmed(quoted));
  if (std::find(kTrue.begin(), kTrue.end(), text) != kTrue.end()) return true;
  if (std::find(kFalse.begin(), kFalse.end(), text) != kFalse.end()) return false;
  return std::nullopt;
}

bool has_placeholder_marks(std::string_view text) {
  if (text.find("${") != std::string_view::npos || text.find("{{") != std::string_view::npos) {
    return true;
  }
  return text.starts_with('<') && text.ends_with('>');
}

bool is_placeholder(std::string_view text) {
  if (has_placeholder_marks(text) || text.starts_with('$')) return true;
  bool underscore = false;
  for (const char c : text) {
    underscore = underscore || c == '_';
    if (!std::isupper(static_cast<unsigned char>(c)) && c != '_' &&
        !std::isdigit(static_cast<unsigned char>(c))) {
      return false;
    }
  }
  return underscore;
}

std::optional<std::string> canonical_text(const KnobRow& row, std::string_view given) {
  std::string text = lower(trimmed(given));
  for (const Synonym& synonym : kSynonyms) {
    if (synonym.other == text) text = synonym.name;
  }
  for (const std::string_view allowed : row.allowed) {
    if (lower(std::string(allowed)) == text) return std::string(allowed);
  }
  return std::nullopt;
}

std::vector<std::string> accepted_texts(const KnobRow& row) {
  std::vector<std::string> texts(row.allowed.begin(), row.allowed.end());
  for (const Synonym& synonym : kSynonyms) {
    const bool meant =
        std::find(row.allowed.begin(), row.allowed.end(), synonym.name) != row.allowed.end();
    if (meant) texts.emplace_back(synonym.other);
  }
  return texts;
}

Json without_repetition(const Json& value) {
  if (value.is_array()) {
    Json copy = Json::array();
    for (const Json& item : value.items()) copy.push_back(without_repetition(item));
    return copy;
  }
  if (!value.is_object()) return value;
  Json copy = Json::object();
  std::unordered_map<std::string_view, std::size_t> place;  // operator[] would search them all
  for (const auto& [key, member] : value.members()) {
    const auto [known, added] = place.try_emplace(key, copy.members().size());
    if (added) {
      copy.members().emplace_back(key, without_repetition(member));
    } else {
      copy.members()[known->second].second = without_repetition(member);
    }
  }
  return copy;
}

Phrase expectation(const KnobRow& row) {
  Phrase text;
  switch (row.type) {
    case KnobType::boolean:
      return "true or false";
    case KnobType::list:
      return "a list";
    case KnobType::object:
      return "an object";
    case KnobType::text:
      if (row.allowed.empty()) return "a text";
      for (const std::string_view& allowed : row.allowed) {
        const bool last = &allowed == &row.allowed.back();
        if (!text.empty()) text += last ? " or " : ", ";
        text += in_quotes(allowed);
      }
      return text;
    case KnobType::integer:
      text = "an integer";
      break;
    case KnobType::real:
      text = "a number";
      break;
  }
  const bool low = std::isfinite(row.range.low);
  const bool high = std::isfinite(row.range.high);
  if (low && high) {
    return phrase(
        "{} between {} and {}", text, bound_text(row.range.low), bound_text(row.range.high));
  }
  if (low) return phrase("{} of at least {}", text, bound_text(row.range.low));
  return text;
}

}  // namespace zeroplan::spelling
