#include "model/families/config_reader.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/described.hpp"
#include "base/phrase_list.hpp"

namespace zeroplan {

namespace {

struct SizeLimit {
  std::int64_t most;
  std::string_view what;
};

// Far above every published model, far below where a list of tensors stops fitting in memory.
SizeLimit limit_of(SizeKind kind) {
  switch (kind) {
    case SizeKind::layers:
      return {2000, "layers"};
    case SizeKind::width:
      return {4'194'304, "elements"};
    case SizeKind::heads:
      return {65'536, "heads"};
    case SizeKind::vocabulary:
      return {16'777'216, "tokens"};
    case SizeKind::positions:
      return {1'073'741'824, "positions"};
    case SizeKind::experts:
      return {8192, "experts"};
  }
  return {0, ""};
}

// The largest published models have about 25,000.
constexpr std::int64_t kMostExperts = 500'000;

Phrase or_list(ConfigReader::Keys keys) {
  return phrase_list(std::vector<Phrase>(keys.begin(), keys.end()), " or ");
}

}  // namespace

ConfigReader::ConfigReader(const Json& object,
                           std::string file,
                           std::string pointer,
                           std::string family,
                           ConfigFindings& findings,
                           bool nested)
    : object_(object),
      file_(std::move(file)),
      pointer_(std::move(pointer)),
      family_(std::move(family)),
      findings_(findings),
      nested_(nested) {}

const Json* ConfigReader::find(Keys keys, std::string* used) const {
  for (const std::string_view key : keys) {
    const Json* value = object_.find(key);
    if (value != nullptr && !value->is_null()) {
      if (used != nullptr) *used = std::string(key);
      return value;
    }
  }
  return nullptr;
}

std::optional<std::int64_t> ConfigReader::read_size(const Json& value,
                                                    std::string_view key,
                                                    std::int64_t least,
                                                    SizeKind kind) const {
  const SizeLimit limit = limit_of(kind);
  const Phrase expected = phrase("an integer between {} and {}", least, limit.most);
  std::int64_t number = 0;
  if (value.is_integer()) {
    number = value.as_integer();
  } else if (value.is_number() && std::isfinite(value.as_number()) &&
             std::abs(value.as_number()) < 1e15 &&
             value.as_number() == std::floor(value.as_number())) {
    number = static_cast<std::int64_t>(value.as_number());
  } else {
    problem(key, expected, described(value));
    return std::nullopt;
  }
  if (number < least || number > limit.most) {
    const Phrase hint =
        number > limit.most
            ? phrase("no published model comes near {} {}; is there a digit too many?",
                     limit.most,
                     limit.what)
            : "";
    problem(key, expected, std::to_string(number), hint);
    return std::nullopt;
  }
  if (kind == SizeKind::layers) findings_.layers = std::max(findings_.layers, number);
  if (kind == SizeKind::experts) findings_.experts = std::max(findings_.experts, number);
  // Each within its limit, their product may still be more tensors than memory holds.
  if (findings_.layers * findings_.experts > kMostExperts) {
    problem(key,
            phrase("at most {} experts in all layers together", kMostExperts),
            phrase("{} layers of {}", findings_.layers, findings_.experts));
    findings_.layers = findings_.experts = 1;  // said once
    return std::nullopt;
  }
  return number;
}

std::int64_t ConfigReader::core(Keys keys, std::int64_t fallback, SizeKind kind) const {
  if (find(keys) == nullptr && !nested_) {
    problem(*keys.begin(),
            phrase("{}, which every {} model needs", or_list(keys), family_),
            "no such key",
            phrase("the default of {} is {}; write it if it is meant", family_, fallback));
    return fallback;
  }
  return size(keys, fallback, kind);
}

std::int64_t ConfigReader::size(Keys keys, std::int64_t fallback, SizeKind kind) const {
  if (find(keys) == nullptr) {
    note(phrase("{} is not in the config: {}, the default of {}, was used.",
                *keys.begin(),
                fallback,
                family_));
    return fallback;
  }
  return derived(keys, fallback, kind);
}

std::int64_t ConfigReader::derived(Keys keys, std::int64_t fallback, SizeKind kind) const {
  std::string used;
  const Json* value = find(keys, &used);
  if (value == nullptr) return fallback;
  return read_size(*value, used, 1, kind).value_or(fallback);
}

std::int64_t ConfigReader::count(Keys keys, std::int64_t fallback, SizeKind kind) const {
  std::string used;
  const Json* value = find(keys, &used);
  if (value == nullptr) return fallback;
  return read_size(*value, used, 0, kind).value_or(fallback);
}

std::optional<std::int64_t> ConfigReader::optional_size(Keys keys, SizeKind kind) const {
  std::string used;
  const Json* value = find(keys, &used);
  if (value == nullptr || (value->is_boolean() && !value->as_boolean())) return std::nullopt;
  return read_size(*value, used, 1, kind);
}

bool ConfigReader::flag(Keys keys, bool fallback, bool noted) const {
  std::string used;
  const Json* value = find(keys, &used);
  if (value == nullptr) {
    if (noted) {
      note(Phrase(*keys.begin()) + " is not in the config: " + (fallback ? "true" : "false") +
           ", the default of " + family_ + ", was used.");
    }
    return fallback;
  }
  if (value->is_boolean()) return value->as_boolean();
  if (value->is_integer() && (value->as_integer() == 0 || value->as_integer() == 1)) {
    return value->as_integer() == 1;
  }
  problem(used, "true or false", described(*value));
  return fallback;
}

double ConfigReader::fraction(Keys keys, double fallback) const {
  std::string used;
  const Json* value = find(keys, &used);
  if (value == nullptr) return fallback;
  if (value->is_number() && value->as_number() >= 0.0 && value->as_number() <= 1.0) {
    return value->as_number();
  }
  problem(used, "a number between 0 and 1", described(*value));
  return fallback;
}

std::string ConfigReader::text(Keys keys, std::string_view fallback) const {
  std::string used;
  const Json* value = find(keys, &used);
  if (value == nullptr) return std::string(fallback);
  if (value->is_string()) return value->as_string();
  problem(used, "a string", described(*value));
  return std::string(fallback);
}

std::vector<std::int64_t> ConfigReader::integers(Keys keys) const {
  std::string used;
  std::vector<std::int64_t> numbers;
  const Json* value = find(keys, &used);
  if (value == nullptr) return numbers;
  if (!value->is_array()) {
    problem(used, "a list of integers", described(*value));
    return numbers;
  }
  for (const Json& item : value->items()) {
    if (!item.is_integer()) {
      problem(used, "a list of integers", phrase("a list with {}", described(item)));
      return numbers;
    }
    numbers.push_back(item.as_integer());
  }
  return numbers;
}

std::vector<std::string> ConfigReader::texts(Keys keys) const {
  std::string used;
  std::vector<std::string> names;
  const Json* value = find(keys, &used);
  if (value == nullptr) return names;
  if (!value->is_array()) {
    problem(used, "a list of strings", described(*value));
    return names;
  }
  for (const Json& item : value->items()) {
    if (!item.is_string()) {
      problem(used, "a list of strings", phrase("a list with {}", described(item)));
      return names;
    }
    names.push_back(item.as_string());
  }
  return names;
}

std::optional<ConfigReader> ConfigReader::child(Keys keys, std::string family) const {
  std::string used;
  const Json* value = find(keys, &used);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) {
    problem(used, "an object", described(*value));
    return std::nullopt;
  }
  return ConfigReader(
      *value, file_, pointer_ + "/" + pointer_token(used), std::move(family), findings_, true);
}

void ConfigReader::must_divide(std::int64_t divisor,
                               Keys divisor_keys,
                               std::int64_t dividend,
                               std::string_view dividend_name) const {
  if (divisor > 0 && dividend % divisor == 0) return;
  std::string used(*divisor_keys.begin());
  find(divisor_keys, &used);
  problem(used, phrase("a divisor of {} = {}", dividend_name, dividend), std::to_string(divisor));
}

void ConfigReader::problem(std::string_view key, Phrase expected, Phrase got, Phrase hint) const {
  findings_.problems.push_back({.file = file_,
                                .pointer = pointer_ + "/" + pointer_token(key),
                                .expected = std::move(expected),
                                .got = std::move(got),
                                .hint = std::move(hint)});
}

void ConfigReader::note(std::string text) const { findings_.notes.push_back(std::move(text)); }

void ConfigReader::throw_problems() const {
  if (!findings_.problems.empty()) throw InputError(findings_.problems);
}

}  // namespace zeroplan
