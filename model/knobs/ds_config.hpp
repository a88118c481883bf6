// What a ds_config.json says, knob by knob: unset, "auto", or a value. No defaults are applied
// here.
//
// In: the text of a file as users write it (old spellings, 5e8 for integers, quoted numbers,
// `"zero_optimization": true`), read as its author meant it; every such reading leaves a note. Out:
// the same in canonical spelling and order. parse(emit(x)) = x; keys that no row of the knob table
// knows are kept verbatim.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.hpp"
#include "model/knobs/finding.hpp"
#include "model/knobs/knobs.hpp"

namespace zeroplan {

struct Unset {
  friend bool operator==(Unset, Unset) = default;
};
// The value "auto".
struct Auto {
  friend bool operator==(Auto, Auto) = default;
};

// What one knob was given. The alternative follows the type of the row: bool, int64, double,
// string, and Json for lists and objects.
using KnobValue = std::variant<Unset, Auto, bool, std::int64_t, double, std::string, Json>;

// A key that no row knows.
struct UnknownKey {
  std::string pointer;
  Json value;
  friend bool operator==(const UnknownKey&, const UnknownKey&) = default;
};

class DsConfig {
 public:
  // What was said. A value of another type, Auto and Unset read as nothing; a real number may have
  // been given as an integer.
  const KnobValue& value(Knob knob) const;
  bool is_set(Knob knob) const { return values_.contains(knob); }  // "auto" counts as set
  bool is_auto(Knob knob) const;
  std::optional<bool> boolean(Knob knob) const;
  std::optional<std::int64_t> integer(Knob knob) const;
  std::optional<double> real(Knob knob) const;
  std::optional<std::string> text(Knob knob) const;
  const Json* json(Knob knob) const;  // null where nothing was said

  // Precondition: the value fits the row's type (checked); Unset removes.
  void set(Knob knob, KnobValue value);
  void set_auto(Knob knob) { set(knob, Auto{}); }
  void unset(Knob knob) { values_.erase(knob); }

  // All that is set, in the order of the table.
  std::vector<std::pair<Knob, const KnobValue&>> values() const;
  const std::vector<UnknownKey>& unknown() const { return unknown_; }
  void add_unknown(UnknownKey key) { unknown_.push_back(std::move(key)); }

  // How the file was read where it was not plain: not part of what it says, so not of ==.
  const std::vector<Finding>& notes() const { return notes_; }
  void add_note(Finding note) { notes_.push_back(std::move(note)); }

  // Notes and the order of unknown keys do not count.
  friend bool operator==(const DsConfig& a, const DsConfig& b);

 private:
  std::map<Knob, KnobValue> values_;
  std::vector<UnknownKey> unknown_;
  std::vector<Finding> notes_;
};

// Codes of the notes.
namespace note_code {
inline constexpr std::string_view kDeprecatedKey = "deprecated-key";
inline constexpr std::string_view kAlternativeKey = "alternative-spelling";
inline constexpr std::string_view kConflictingKeys = "conflicting-spellings";
inline constexpr std::string_view kFloatInteger = "float-integer";
inline constexpr std::string_view kRoundedNumber = "rounded-number";
inline constexpr std::string_view kExponentSign = "exponent-sign";
inline constexpr std::string_view kQuotedValue = "quoted-value";
inline constexpr std::string_view kNumberForBoolean = "number-for-boolean";
inline constexpr std::string_view kOtherSpelling = "value-spelling";
inline constexpr std::string_view kNullValue = "null-value";
inline constexpr std::string_view kAutoSection = "auto-section";
inline constexpr std::string_view kAutoUnresolved = "auto-unresolved";
inline constexpr std::string_view kBooleanZero = "zero-optimization-boolean";
inline constexpr std::string_view kDuplicateKey = "duplicate-key";
inline constexpr std::string_view kUnknownKey = "unknown-key";
inline constexpr std::string_view kMisspelledKey = "misspelled-key";
inline constexpr std::string_view kMisplacedKey = "misplaced-key";
inline constexpr std::string_view kRejectedKey = "rejected-key";
inline constexpr std::string_view kComments = "comments";
inline constexpr std::string_view kTrailingCommas = "trailing-commas";
}  // namespace note_code

// Reads a document. Throws InputError with everything that is wrong in it: wrong types, values out
// of range, an autotuning list where one value is needed, a placeholder of a template.
DsConfig parse_ds_config(const JsonDocument& document);
// The same for a file; syntax errors name line and column.
DsConfig read_ds_config(const std::string& path);

// The document in canonical spelling, in the order of the table, sections nested; unknown keys
// stand behind the known ones of their section.
Json emit(const DsConfig& config);

enum class ConfigStyle { native, hf_trainer };

// The same configuration for a run under the Hugging Face Trainer: what the Trainer owns (batch
// keys, clipping, fp16 and bf16, parameters of optimizer and scheduler that are given) is "auto",
// so that it cannot disagree with the Trainer's arguments; all else stays explicit.
DsConfig for_trainer(const DsConfig& config);
// for_trainer for hf_trainer, the configuration itself for native.
DsConfig in_style(const DsConfig& config, ConfigStyle style);

// A value as it stands in the file; null for Unset.
Json to_json(const KnobValue& value);
// A literal of the table as a value, e.g. a point of a grid; Unset for none.
KnobValue to_value(const KnobLiteral& literal);
// The table's default as a value; Unset where it is derived or absent. Of a series: as its last
// release has it.
KnobValue default_value(Knob knob, int stage, const Version& release);
KnobValue default_value(Knob knob, int stage, DeepSpeedVersion version);

}  // namespace zeroplan
