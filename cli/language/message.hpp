// A sentence with slots, in English and in another language: one row of the catalogue.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zeroplan::cli {

// A text with slots:
//   {} {0} {1} ...  any text, which is translated
//   {#}  the same; it tells who reads the row that a number with its unit stands there: "31.4 GiB"
//   {=}  a name, which no translation touches    {w}  the same, a name without spaces
// Slots without a number count from 0.
class MessageFormat {
 public:
  struct Slot {
    std::size_t number = 0;
    bool is_name = false;
  };

  explicit MessageFormat(std::string_view text);
  static MessageFormat of_key(std::string_view key);  // of a phrase

  // pieces()[0] slots()[0] pieces()[1] ... : one piece more than slots.
  const std::vector<std::string>& pieces() const { return pieces_; }
  const std::vector<Slot>& slots() const { return slots_; }
  std::size_t arguments() const;  // one more than the largest number
  std::string key() const;        // of a phrase with these pieces

  // Chinese characters and Latin letters or digits that meet at a slot get a space between them,
  // two Chinese ones none. Precondition: as many arguments as the slots' numbers ask for.
  std::string filled(const std::vector<std::string>& arguments) const;

 private:
  std::vector<std::string> pieces_;
  std::vector<Slot> slots_;
};

}  // namespace zeroplan::cli
