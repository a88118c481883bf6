// Reads the keys of a Hugging Face config: aliases, ranges, defaults of the configuration class,
// and every problem at once.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/json.hpp"

namespace zeroplan {

// What was found while reading one config, nested objects included.
struct ConfigFindings {
  std::vector<Diagnostic> problems;
  std::vector<Phrase> notes;
  // The most that was read of each; their product is a number of tensors.
  std::int64_t layers = 1;
  std::int64_t experts = 1;
};

// The largest value that makes sense; more is taken for a typing error.
enum class SizeKind { layers, width, heads, vocabulary, positions, experts };

class ConfigReader {
 public:
  // Names of one value, the family's own first.
  using Keys = std::initializer_list<std::string_view>;

  // `family` names the configuration class in messages ("LlamaConfig"). In a nested object, as
  // inside a vision model, keys that equal the class's default are usually left out, so there even
  // the core sizes may be missing.
  ConfigReader(const Json& object,
               std::string file,
               std::string pointer,
               std::string family,
               ConfigFindings& findings,
               bool nested = false);

  // A size every model of the family must name; in a nested object `fallback` stands in, with a
  // note.
  std::int64_t core(Keys keys, std::int64_t fallback, SizeKind kind) const;
  // A size with the class's default. The default is noted because it decides a count.
  std::int64_t size(Keys keys, std::int64_t fallback, SizeKind kind) const;
  // The same where the default follows from other values or decides no count: no note.
  std::int64_t derived(Keys keys, std::int64_t fallback, SizeKind kind) const;
  // A count that may be zero, such as a number of shared experts.
  std::int64_t count(Keys keys, std::int64_t fallback, SizeKind kind) const;
  // Absent, null and false mean nothing.
  std::optional<std::int64_t> optional_size(Keys keys, SizeKind kind) const;
  // A flag that decides which tensors exist; its default is noted when `noted`.
  bool flag(Keys keys, bool fallback, bool noted = false) const;
  double fraction(Keys keys, double fallback) const;  // between 0 and 1
  std::string text(Keys keys, std::string_view fallback) const;
  // A list of integers (layer indices), empty where absent.
  std::vector<std::int64_t> integers(Keys keys) const;
  // A list of names (layer_types), empty where absent.
  std::vector<std::string> texts(Keys keys) const;

  bool has(Keys keys) const { return find(keys) != nullptr; }  // present and not null
  const Json* find(Keys keys, std::string* used = nullptr) const;
  // Of the first of the keys that is an object; null where there is none.
  std::optional<ConfigReader> child(Keys keys, std::string family) const;

  // heads * head_dim must be hidden where the class divides. Reported at the heads' key.
  void must_divide(std::int64_t divisor,
                   Keys divisor_keys,
                   std::int64_t dividend,
                   std::string_view dividend_name) const;

  void problem(std::string_view key, Phrase expected, Phrase got, Phrase hint = "") const;
  void note(std::string text) const;
  // Throws what was collected, if anything.
  void throw_problems() const;

  const Json& object() const { return object_; }
  const std::string& family() const { return family_; }
  const std::string& file() const { return file_; }
  const std::string& pointer() const { return pointer_; }

 private:
  std::optional<std::int64_t> read_size(const Json& value,
                                        std::string_view key,
                                        std::int64_t least,
                                        SizeKind kind) const;

  const Json& object_;
  std::string file_;
  std::string pointer_;
  std::string family_;
  ConfigFindings& findings_;
  bool nested_ = false;
};

}  // namespace zeroplan
