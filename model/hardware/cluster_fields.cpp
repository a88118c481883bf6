#include "model/hardware/cluster_fields.hpp"

#include <algorithm>
#include <utility>

#include "base/described.hpp"
#include "base/plain_text.hpp"

namespace zeroplan {
namespace {

// Bounds that only mistakes cross. The lower ones catch GB or GB/s written for bytes.
constexpr double kLeastMemory = 64.0 * (1 << 20);
constexpr double kMostMemoryBytes = 1e15;
constexpr double kLeastRate = 1e6;
constexpr double kMostRate = 1e15;

std::string listed(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

}  // namespace

Fields::Fields(const Json& object,
               std::string file,
               std::string pointer,
               std::vector<Diagnostic>& diagnostics)
    : object_(object),
      file_(std::move(file)),
      pointer_(std::move(pointer)),
      diagnostics_(diagnostics) {}

std::string Fields::pointer(std::string_view key) const {
  return pointer_ + "/" + pointer_token(key);
}

const Json* Fields::find(std::string_view key) const {
  const Json* value = object_.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void Fields::complain(std::string_view key, Phrase expected, Phrase got, Phrase hint) {
  diagnostics_.push_back(
      {file_, pointer(key), std::move(expected), std::move(got), std::move(hint)});
}

void Fields::only(std::span<const std::string_view> keys) {
  for (const auto& [key, value] : object_.members()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    if (diagnostics_.size() >= kMostProblems) return;
    complain(key,
             phrase("one of {}", listed(keys)),
             phrase("the key {}", in_quotes(key)),
             did_you_mean(key, keys));
  }
}

std::optional<double> Fields::number(std::string_view key,
                                     double least,
                                     double most,
                                     std::string_view unit,
                                     std::string_view example) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const double given = value->is_number() ? value->as_number() : std::nan("");
  if (given >= least && given <= most) return given;
  Phrase hint;
  if (given > 0 && given < least) hint = std::string(example);
  complain(key, phrase("{} from {:.4g} to {:.4g}", unit, least, most), described(*value), hint);
  return std::nullopt;
}

std::optional<std::int64_t> Fields::integer(std::string_view key,
                                            std::int64_t least,
                                            std::int64_t most) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const double given = value->is_number() ? value->as_number() : std::nan("");
  if (given >= static_cast<double>(least) && given <= static_cast<double>(most) &&
      given == std::floor(given)) {
    return static_cast<std::int64_t>(given);
  }
  complain(key, phrase("an integer from {} to {}", least, most), described(*value));
  return std::nullopt;
}

std::optional<BytesPerSecond> Fields::rate(std::string_view key) {
  const auto given = number(key, kLeastRate, kMostRate, "bytes per second", "25 GB/s is 25e9");
  if (!given) return std::nullopt;
  return BytesPerSecond::of(*given);
}

std::optional<Bytes> Fields::bytes(std::string_view key) {
  const auto given = number(key, kLeastMemory, kMostMemoryBytes, "bytes", "80 GiB is 85899345920");
  if (!given) return std::nullopt;
  return Bytes::nearest(*given);
}

std::optional<std::string> Fields::text(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string() && !has_control_character(value->as_string())) return value->as_string();
  complain(
      key, value->is_string() ? "a text without control characters" : "a text", described(*value));
  return std::nullopt;
}

std::optional<Fields> Fields::object(std::string_view key, std::string_view what) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_object()) return Fields(*value, file_, pointer(key), diagnostics_);
  complain(key, std::string(what), described(*value));
  return std::nullopt;
}

std::optional<std::size_t> Fields::choice_of(std::string_view key,
                                             std::span<const std::string_view> names) {
  const std::optional<std::string> given = text(key);
  if (!given) return std::nullopt;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (folded_name(*given) == folded_name(names[i])) return i;
  }
  complain(key, phrase("one of {}", listed(names)), in_quotes(*given), did_you_mean(*given, names));
  return std::nullopt;
}

}  // namespace zeroplan
