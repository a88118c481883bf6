// Sizes of a recorded class (recorded_class.hpp): formulas over the keys of its config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "base/phrase.hpp"

namespace zeroplan {

// The config with its lists of layers' kinds in the class's own words ("spelling" of the family):
// older releases have others, and some configs a text with a letter for each layer.
Json spelled_out(const Json& family, Json config);

// The values of the config's keys, with the class's defaults for those that it does not say. Keys
// of a config inside the config stand behind its name: "text_config.hidden_size".
class RecordedValues {
 public:
  RecordedValues(const Json& config, const Json& document);

  // The config's own value, perhaps by another name of the key; null where it says nothing.
  const Json* said(std::string_view key) const;
  const Json* find(std::string_view key) const;
  std::optional<std::int64_t> size(std::string_view key) const;
  // The size of a key, or a whole number by "=" and a formula.
  std::optional<std::int64_t> sum(std::string_view said) const;
  // The value of another key where a document says "=KEY".
  const Json* resolved(const Json* value) const;

  // A key of the model of text: the config's own, or that of the config inside it.
  std::string of_text(std::string_view key) const { return text_ + std::string(key); }
  bool has_parts() const { return !text_.empty(); }
  // Whether the config names the class of its text model, whose defaults stand in for what it
  // leaves out.
  bool names_text() const;
  // The head_dim of a config that does not say one: rounded, where the class has such a key.
  std::optional<std::int64_t> share_of_a_head() const;

 private:
  const Json* said_by_name(std::string_view key) const;

  const Json& config_;
  const Json& defaults_;
  const Json* heads_;
  const Json* aliases_;  // other name: key
  std::string text_;
};

// Raised where the document has no sizes for this config, with the key at fault.
struct NotRecorded {
  std::string key;
  Phrase expected;
};

// Every formula in `value` becomes its number. Throws NotRecorded.
void put_numbers(Json& value, const RecordedValues& values);

}  // namespace zeroplan
