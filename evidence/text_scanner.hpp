// Reads words, numbers and sizes off the front of a text. Each reader either takes what it names
// and returns it, or takes nothing. Case does not count; any run of white space stands for a space.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/units.hpp"

namespace zeroplan::evidence {

// A size as a log prints it. "26.08 GiB" means 26.08 GiB give or take half of the last digit.
struct PrintedSize {
  Bytes bytes;
  Bytes rounding;  // half a unit of the last digit; zero for whole bytes
  friend bool operator==(const PrintedSize&, const PrintedSize&) = default;
};

class TextScanner {
 public:
  explicit TextScanner(std::string_view text, std::size_t at = 0) : text_(text), at_(at) {}

  std::size_t at() const { return at_; }
  bool at_end() const { return at_ >= text_.size(); }
  void skip_space();
  // Skips any of these characters and white space.
  void skip_any(std::string_view characters);
  // Skips white space and takes the words, in any case.
  bool take(std::string_view words);
  // A whole number; it ends before any character.
  std::optional<std::int64_t> integer();
  // A finite number as programs print them: "-1", "0.5", "1.2E-05"; it ends before any character.
  std::optional<double> real();

  // "98.00 MiB", "0 bytes", "512 B". `known` is false for a size that no memory has, such as the
  // 17179869184.00 GiB that Windows' subsystem for Linux prints for a negative one.
  struct Size {
    bool known = false;
    PrintedSize size;
  };
  std::optional<Size> size();

 private:
  std::string_view text_;
  std::size_t at_;
};

// Where `words` stand in the text from `from` on, in any case and any white space; npos for
// nowhere. `words` open with a character that is no white space.
std::size_t find_words(std::string_view text, std::string_view words, std::size_t from = 0);

}  // namespace zeroplan::evidence
