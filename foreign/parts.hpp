// The settings of the parts of one key, as readers of other loops ask for them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "foreign/said_elsewhere.hpp"

namespace zeroplan::foreign {

using PartsByKey = std::map<ScenarioKey, SaidParts>;

class Parts {
 public:
  Parts(const PartsByKey& parts, ScenarioKey key) {
    const auto found = parts.find(key);
    if (found != parts.end()) said_ = &found->second;
  }
  // Null where nothing says it.
  const Json* find(std::string_view name) const {
    return said_ == nullptr ? nullptr : said_->object.find(name);
  }
  bool on(std::string_view name, bool otherwise = false) const {
    const Json* found = find(name);
    return found == nullptr ? otherwise : is_on(*found);
  }
  // Rows read numbers of a command line as real ones.
  std::int64_t count(std::string_view name, std::int64_t otherwise) const {
    const Json* found = find(name);
    if (found == nullptr) return otherwise;
    return found->is_number() ? static_cast<std::int64_t>(found->as_number()) : count_of(*found);
  }
  double number(std::string_view name, double otherwise) const {
    const Json* found = find(name);
    return found != nullptr && found->is_number() ? found->as_number() : otherwise;
  }
  std::string text(std::string_view name, const std::string& otherwise) const {
    const Json* found = find(name);
    return found == nullptr ? otherwise : text_of(*found);
  }

 private:
  const SaidParts* said_ = nullptr;
};

}  // namespace zeroplan::foreign
