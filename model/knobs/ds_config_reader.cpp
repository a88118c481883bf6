// Reading a ds_config.json as its author meant it; see ds_config.hpp.
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_map>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "base/plain_text.hpp"
#include "model/knobs/ds_config.hpp"
#include "model/knobs/ds_config_spelling.hpp"
#include "model/knobs/rule_view.hpp"

namespace zeroplan {
namespace {

using spelling::boolean_in;
using spelling::canonical_text;
using spelling::expectation;
using spelling::has_placeholder_marks;
using spelling::is_placeholder;
using spelling::lower;
using spelling::number_in;
using spelling::without_repetition;

// Largest double below 2^63: what still converts to int64.
constexpr double kLargestInteger = 9223372036854774784.0;

class Reader {
 public:
  explicit Reader(const JsonDocument& document) : document_(document) {}

  DsConfig read() {
    if (!document_.root.is_object()) {
      throw InputError({document_.file, "", "an object", described(document_.root), ""});
    }
    note_syntax();
    read_section(document_.root, "");
    for (const Deferred& alias : deferred_) read_alias(alias);
    apply_pinned_flag();
    if (!errors_.empty()) throw InputError(errors_);
    return std::move(config_);
  }

 private:
  // A member under another name than the table's: read last, because the table's name wins.
  struct Deferred {
    std::string pointer;
    const Json* value;
    AliasMatch match;
  };

  // What the row of that code says; a note that does not stop DeepSpeed is a warning at most.
  void note(std::string_view code,
            const std::string& pointer,
            std::vector<Phrase> arguments = {},
            int text = 0) {
    const RuleInfo& row = rules::reading_note(code);
    const Severity severity = row.severity == Severity::error ? Severity::warning : row.severity;
    config_.add_note(finding_of(row, pointer, std::move(arguments), text, severity));
  }

  void error(std::string pointer, Phrase expected, const Json& got, Phrase hint) {
    errors_.push_back(
        {document_.file, std::move(pointer), std::move(expected), described(got), std::move(hint)});
  }

  void note_syntax() {
    if (document_.had_comments) note(note_code::kComments, "");
    if (document_.had_trailing_commas) note(note_code::kTrailingCommas, "");
    for (const DuplicateKey& twice : document_.duplicates) {
      note(note_code::kDuplicateKey, twice.pointer, {std::to_string(twice.line)});
    }
  }

  void read_section(const Json& object, const std::string& section) {
    std::unordered_map<std::string_view, const Json*> last;  // of keys that are repeated it counts
    for (const auto& [key, value] : object.members()) last[key] = &value;
    for (const auto& [key, value] : object.members()) {
      if (last[key] != &value) continue;
      read_member(section, key, value);
    }
  }

  void read_member(const std::string& section, const std::string& key, const Json& value) {
    const std::string pointer = section + "/" + pointer_token(key);
    if (pointer == kZeroSection && value.is_boolean()) {
      read_boolean_zero(value.as_boolean());
    } else if (const std::optional<Knob> knob = find_knob(pointer)) {
      read_value(knob_row(*knob), value, pointer);
    } else if (const std::optional<AliasMatch> match = find_alias(pointer)) {
      deferred_.push_back({pointer, &value, *match});
    } else if (find_section(pointer)) {
      read_subsection(pointer, value);
    } else {
      keep_unknown(section, key, pointer, value);
    }
  }

  // Before sections existed, true meant stage 1.
  // Source: deepspeed/runtime/zero/config.py:read_zero_config_deprecated.
  void read_boolean_zero(bool on) {
    config_.set(Knob::zero_stage, std::int64_t{on ? 1 : 0});
    note(note_code::kBooleanZero,
         std::string(kZeroSection),
         {on ? "true" : "false", on ? "1" : "0"});
  }

  void read_subsection(const std::string& pointer, const Json& value) {
    if (value.is_object()) {
      read_section(value, pointer);
    } else if (value.is_null()) {
      note(note_code::kNullValue, pointer);
    } else if (value.is_string() && lower(value.as_string()) == "auto") {
      note(note_code::kAutoSection, pointer);
    } else {
      const bool flag = value.is_boolean() && find_knob(pointer + "/enabled").has_value();
      const bool stage = pointer == kZeroSection && value.is_integer();
      error(pointer,
            "an object",
            value,
            flag    ? phrase("write {{\"enabled\": {}}}", value.dump())
            : stage ? phrase("write {{\"stage\": {}}}", value.dump())
                    : "");
    }
  }

  void keep_unknown(const std::string& section,
                    const std::string& key,
                    const std::string& pointer,
                    const Json& value) {
    if (config_.unknown().size() >= kMostProblems) {
      throw InputError(
          {document_.file,
           pointer,
           phrase("a ds_config.json: at most {} keys that DeepSpeed does not know", kMostProblems),
           "more",
           ""});
    }
    config_.add_unknown({pointer, without_repetition(value)});
    const auto strict = find_section(section)->strict_since;
    std::vector<std::string> near = nearest_names(key, names_in_section(section), 1);
    // Where DeepSpeed takes any key, people leave notes and other programs' settings.
    if (!strict && !near.empty() && !is_misspelling_of(near.front(), key)) near.clear();
    const std::string elsewhere = near.empty() ? key_elsewhere(key) : "";
    if (strict) {
      const int text = !near.empty() ? 1 : !elsewhere.empty() ? 2 : 0;
      note(note_code::kRejectedKey,
           pointer,
           {near.empty() ? elsewhere : near.front(), std::string(name(*strict))},
           text);
      return;
    }
    const bool passed_on = section == "/optimizer/params" || section == "/scheduler/params";
    if (!near.empty()) {
      note(note_code::kMisspelledKey, pointer, {near.begin(), near.end()}, passed_on ? 1 : 0);
    } else if (!elsewhere.empty()) {
      note(note_code::kMisplacedKey, pointer, {elsewhere});
    } else if (const std::string meant = misspelled_elsewhere(section, key); !meant.empty()) {
      note(note_code::kMisplacedKey, pointer, {meant}, 1);
    } else {
      note(note_code::kUnknownKey, pointer, {}, passed_on ? 1 : 0);
    }
  }

  // The only knob whose name `matches`; empty where none or several do.
  template <typename Matches>
  static std::string only_knob(Matches matches) {
    std::string_view found;
    for (const KnobRow& row : knob_rows()) {
      // Nobody means Apex today: fp16.opt_level is a leftover.
      const bool apex = row.pointer.starts_with("/amp/");
      if (apex || !matches(row.pointer.substr(row.pointer.rfind('/') + 1))) continue;
      if (!found.empty()) return "";
      found = row.pointer;
    }
    return std::string(found);
  }

  // "/gradient_clipping" for a key that only stands in the wrong section.
  static std::string key_elsewhere(std::string_view key) {
    const std::string within_zero = std::string(kZeroSection) + "/" + std::string(key);
    if (find_section(within_zero)) return within_zero;
    return only_knob([&](std::string_view name) { return name == key; });
  }

  // "/zero_optimization/stage" for "stge" at the top. Short names are too near to anything.
  static std::string misspelled_elsewhere(std::string_view section, std::string_view key) {
    constexpr std::size_t kTelling = 4;
    if (!section.empty() || key.size() < kTelling) return "";
    return only_knob([&](std::string_view name) {
      return name.size() >= kTelling && is_misspelling_of(name, key);
    });
  }

  void read_alias(const Deferred& alias) {
    const KnobRow& row = knob_row(alias.match.knob);
    const std::string canonical(row.pointer);
    if (alias.match.kind == AliasKind::pinned_flag) {
      pinned_flag_ = read_flag(alias);
      note(note_code::kDeprecatedKey, alias.pointer, {}, 2);
      return;
    }
    if (config_.is_set(row.id)) {
      note(note_code::kConflictingKeys, alias.pointer, {canonical});
      return;
    }
    if (alias.match.kind == AliasKind::cpu_flag) {
      const std::optional<bool> on = read_flag(alias);
      if (on.value_or(false)) config_.set(row.id, std::string("cpu"));
      note(note_code::kDeprecatedKey, alias.pointer, {canonical}, 1);
      return;
    }
    read_value(row, *alias.value, alias.pointer);
    note(alias.match.kind == AliasKind::deprecated ? note_code::kDeprecatedKey
                                                   : note_code::kAlternativeKey,
         alias.pointer,
         {canonical});
  }

  std::optional<bool> read_flag(const Deferred& alias) {
    if (alias.value->is_boolean()) return alias.value->as_boolean();
    const std::optional<bool> quoted =
        alias.value->is_string() ? boolean_in(alias.value->as_string()) : std::nullopt;
    if (!quoted && !alias.value->is_null()) error(alias.pointer, "true or false", *alias.value, "");
    return quoted;
  }

  void apply_pinned_flag() {
    if (!pinned_flag_) return;
    constexpr std::array kOffloads = {
        std::pair{Knob::offload_optimizer_device, Knob::offload_optimizer_pin_memory},
        std::pair{Knob::offload_param_device, Knob::offload_param_pin_memory}};
    for (const auto& [device, pinned] : kOffloads) {
      const std::string where = config_.text(device).value_or("none");
      if (where != "none" && !config_.is_set(pinned)) config_.set(pinned, *pinned_flag_);
    }
  }

  void read_value(const KnobRow& row, const Json& value, const std::string& pointer) {
    if (value.is_null()) {
      if (!row.default_value.is_none()) {
        note(note_code::kNullValue, pointer);
      }
      return;
    }
    if (value.is_string() && value.as_string() == "auto") {
      config_.set_auto(row.id);
      if (row.automatic == AutoRule::unresolved) {
        note(note_code::kAutoUnresolved, pointer);
      }
      return;
    }
    switch (row.type) {
      case KnobType::boolean:
        return read_boolean(row, value, pointer);
      case KnobType::integer:
      case KnobType::real:
        return read_number(row, value, pointer);
      case KnobType::text:
        return read_text(row, value, pointer);
      case KnobType::list:
      case KnobType::object:
        if (row.type == KnobType::list ? value.is_array() : value.is_object()) {
          config_.set(row.id, without_repetition(value));
        } else {
          mistyped(row, value, pointer);
        }
    }
  }

  // A value of the wrong type, with the usual cause as hint.
  void mistyped(const KnobRow& row, const Json& value, const std::string& pointer) {
    Phrase hint;
    if (value.is_array()) {
      hint =
          "a list is a search space of DeepSpeed's autotuner: choose one value, or let "
          "`zeroplan tune` search";
    } else if (value.is_string() && is_placeholder(value.as_string())) {
      hint = phrase("this is a template: replace the placeholder {} by a value", value.as_string());
    } else if (value.is_string() && row.type == KnobType::text) {
      const std::vector<std::string_view> allowed(row.allowed.begin(), row.allowed.end());
      hint = did_you_mean(value.as_string(), allowed);
    } else if (row.id == Knob::zero_stage && value.is_string()) {
      hint = "choose one stage, or let `zeroplan fit` compare them";
    }
    error(pointer, expectation(row), value, hint);
  }

  void read_boolean(const KnobRow& row, const Json& value, const std::string& pointer) {
    if (value.is_boolean()) {
      config_.set(row.id, value.as_boolean());
    } else if (const auto quoted =
                   value.is_string() ? boolean_in(value.as_string()) : std::nullopt) {
      config_.set(row.id, *quoted);
      note(note_code::kQuotedValue, pointer, {*quoted ? "true" : "false"});
    } else if (value.is_number() && (value.as_number() == 0.0 || value.as_number() == 1.0)) {
      config_.set(row.id, value.as_number() == 1.0);
      note(note_code::kNumberForBoolean, pointer, {value.as_number() == 1.0 ? "true" : "false"});
    } else {
      mistyped(row, value, pointer);
    }
  }

  void read_number(const KnobRow& row, const Json& value, const std::string& pointer) {
    std::optional<Json> number;
    if (value.is_number()) {
      number = value;
    } else if (value.is_string()) {
      number = number_in(value.as_string());
    }
    if (!number) return mistyped(row, value, pointer);
    if (row.type == KnobType::integer && !number->is_integer()) {
      number = as_whole(row, *number, pointer);
    }
    const bool inside =
        number && number->as_number() >= row.range.low && number->as_number() <= row.range.high;
    if (!inside) return mistyped(row, value, pointer);
    if (value.is_string()) note(note_code::kQuotedValue, pointer, {number->dump()});
    if (row.type == KnobType::integer) {
      config_.set(row.id, number->as_integer());
    } else {
      config_.set(row.id, number->as_number());
    }
  }

  // 5e8 as the integer it is; a number of elements with a fraction is cut, because old
  // Trainers wrote 0.9 * h * h so and old DeepSpeed cut it. Nothing where that cannot be meant.
  std::optional<Json> as_whole(const KnobRow& row, const Json& number, const std::string& pointer) {
    const double real = number.as_number();
    if (std::fabs(real) > kLargestInteger) return std::nullopt;
    const auto whole = static_cast<std::int64_t>(real);
    if (static_cast<double>(whole) == real) {
      note(note_code::kFloatInteger, pointer, {number.dump(), std::to_string(whole)});
      return Json(whole);
    }
    if (row.unit != KnobUnit::elements) return std::nullopt;
    if (real > 0.0 && real < 1.0) {
      note(note_code::kExponentSign, pointer, {number.dump(), without_minus(real)});
    } else {
      note(note_code::kRoundedNumber, pointer, {number.dump(), std::to_string(whole)});
    }
    return Json(whole);
  }

  // 2e-7 -> "20000000": the number with the sign of its exponent turned.
  static std::string without_minus(double small) {
    const double exponent = std::floor(std::log10(small));
    const double mantissa = std::round(small / std::pow(10.0, exponent) * 1e6) / 1e6;
    const double large = std::round(mantissa * std::pow(10.0, -exponent));
    return large < kLargestInteger ? std::to_string(static_cast<std::int64_t>(large)) : "more";
  }

  void read_text(const KnobRow& row, const Json& value, const std::string& pointer) {
    if (!value.is_string()) return mistyped(row, value, pointer);
    const std::string& text = value.as_string();
    if (row.allowed.empty()) {
      if (has_placeholder_marks(text)) return mistyped(row, value, pointer);
      if (has_control_character(text)) {
        return error(pointer, "a text without control characters", value, "");
      }
      config_.set(row.id, text);
      return;
    }
    const std::optional<std::string> canonical = canonical_text(row, text);
    if (!canonical) return mistyped(row, value, pointer);
    config_.set(row.id, *canonical);
    if (*canonical != text) {
      note(note_code::kOtherSpelling, pointer, {in_quotes(text), in_quotes(*canonical)});
    }
  }

  static constexpr std::string_view kZeroSection = "/zero_optimization";

  const JsonDocument& document_;
  DsConfig config_;
  std::vector<Diagnostic> errors_;
  std::vector<Deferred> deferred_;
  std::optional<bool> pinned_flag_;
};

}  // namespace

DsConfig parse_ds_config(const JsonDocument& document) { return Reader(document).read(); }

DsConfig read_ds_config(const std::string& path) { return parse_ds_config(read_json_file(path)); }

}  // namespace zeroplan
