// A text for people that knows what it was made of: the English that stands in the source, with
// slots, and what fills them. Its English is there at once; another language is made of the parts
// where the text is printed (cli/language/translation.hpp), by looking the English up.
//
//   phrase("{} needs {:.1f} GiB", name, gib)   as fmt::format, checked while compiling
//   Phrase("wrote ") + path + " and more"      the same as phrase("wrote {} and more", path)
//
// So a literal is text of the source, and everything else fills a slot: a name or a number stays
// what it is, a Phrase is translated in its place. Copies share their parts.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/core.h>

namespace zeroplan {

class Phrase {
 public:
  static constexpr char kSlot = '\x01';  // stands for a slot in keys

  Phrase() = default;
  Phrase(const char* text);        // a literal of the source
  Phrase(std::string value);       // a name, a number, what a user wrote
  Phrase(std::string_view value);  // the same

  const std::string& english() const;
  operator const std::string&() const { return english(); }
  bool empty() const { return english().empty(); }

  // The English with kSlot in place of each slot; "" where the phrase is a value.
  std::string_view key() const;
  bool is_value() const { return key().empty(); }
  // What fills the slots, one for each kSlot of the key.
  const std::vector<Phrase>& arguments() const;

  Phrase& operator+=(const char* text);  // joins the key
  Phrase& operator+=(char text);
  Phrase& operator+=(const Phrase& argument);  // fills a new slot

  // Goes on with a part of the same sentence: both keys become one.
  Phrase& append(const Phrase& part);

  // The same words with `change` done to each value.
  Phrase with_values(const std::function<std::string(std::string_view)>& change) const;

  friend Phrase operator+(Phrase left, const char* right) { return std::move(left += right); }
  friend Phrase operator+(Phrase left, char right) { return std::move(left += right); }
  friend Phrase operator+(Phrase left, const Phrase& right) { return std::move(left += right); }

  friend bool operator==(const Phrase& a, const Phrase& b) { return a.english() == b.english(); }
  friend bool operator==(const Phrase& a, std::string_view b) { return a.english() == b; }
  friend bool operator==(const Phrase& a, const std::string& b) { return a.english() == b; }
  friend bool operator==(const Phrase& a, const char* b) { return a.english() == b; }
  friend bool operator<(const Phrase& a, const Phrase& b) { return a.english() < b.english(); }
  friend bool operator<(const Phrase& a, std::string_view b) { return a.english() < b; }
  friend bool operator<(std::string_view a, const Phrase& b) { return a < b.english(); }

 private:
  struct Made;
  Made& own();  // parts that no other phrase shares

  std::shared_ptr<Made> made_;  // none: empty

  friend struct PhraseMaker;
};

namespace phrase_parts {

// One argument of phrase(): made by its type and by its field of the format, "{}" or "{:.1f}".
struct Argument {
  const void* value;
  Phrase (*made)(const void* value, const std::string& field);
};

template <typename T>
Phrase made(const void* value, const std::string& field) {
  const T& argument = *static_cast<const T*>(value);
  if constexpr (std::is_convertible_v<const T&, Phrase>) {
    if (field == "{}") return argument;
    const Phrase text = argument;
    return Phrase(fmt::format(fmt::runtime(field), std::string_view(text.english())));
  } else {
    return Phrase(fmt::format(fmt::runtime(field), argument));
  }
}

Phrase filled(std::string_view format, std::span<const Argument> arguments);

}  // namespace phrase_parts

}  // namespace zeroplan

template <>
struct fmt::formatter<zeroplan::Phrase> : fmt::formatter<fmt::string_view> {
  template <typename Context>
  auto format(const zeroplan::Phrase& phrase, Context& context) const {
    return fmt::formatter<fmt::string_view>::format(phrase.english(), context);
  }
};

namespace zeroplan {

// As fmt::format.
template <typename... Arguments>
Phrase phrase(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  const std::array<phrase_parts::Argument, sizeof...(Arguments)> made{
      phrase_parts::Argument{&arguments, &phrase_parts::made<std::remove_cvref_t<Arguments>>}...};
  const fmt::string_view text = format;
  return phrase_parts::filled({text.data(), text.size()}, made);
}

}  // namespace zeroplan
