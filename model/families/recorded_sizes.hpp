// Sizes of a recorded class (recorded_class.hpp): formulas over the keys of its config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "base/phrase.hpp"

namespace zeroplan {

// The values of the config's keys, with the class's defaults for those that it does not say.
class RecordedValues {
 public:
  RecordedValues(const Json& config, const Json& document)
      : config_(config), defaults_(*document.find("defaults")), heads_(document.find("heads")) {}

  const Json* find(std::string_view key) const {
    const Json* said = config_.find(key);
    if (said != nullptr && !said->is_null()) return said;
    if (heads_ != nullptr && heads_->find("key")->as_string() == key) {
      return find(heads_->find("of")->as_string());  // as many as there are heads
    }
    return said != nullptr ? said : defaults_.find(key);
  }

  std::optional<std::int64_t> size(std::string_view key) const {
    const Json* value = find(key);
    if (key == "head_dim" && (value == nullptr || value->is_null())) return share_of_a_head();
    if (value == nullptr || !value->is_integer() || value->as_integer() < 0) return std::nullopt;
    return value->as_integer();
  }

  // The head_dim of a config that does not say one: rounded, where the class has such a key.
  std::optional<std::int64_t> share_of_a_head() const {
    const auto hidden = size("hidden_size");
    const auto heads = size("num_attention_heads");
    if (!hidden || !heads || *heads == 0) return std::nullopt;
    if (*hidden % *heads != 0 && defaults_.find("head_dim") == nullptr) return std::nullopt;
    return *hidden / *heads;
  }

 private:
  const Json& config_;
  const Json& defaults_;
  const Json* heads_;
};

// Raised where the document has no sizes for this config, with the key at fault.
struct NotRecorded {
  std::string key;
  Phrase expected;
};

// Every formula in `value` becomes its number. Throws NotRecorded.
void put_numbers(Json& value, const RecordedValues& values);

}  // namespace zeroplan
