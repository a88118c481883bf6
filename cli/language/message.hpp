// A sentence with slots, in English and in another language: one row of the catalogue.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zeroplan {

// A text with slots, which take what is not empty:
//   {} {0} {1} ...  any text    {#}  a number with its unit: "31.4 GiB", "-"
//   {=}  a name, which no translation touches    {w}  a name without spaces
// Slots without a number count from 0.
class MessageFormat {
 public:
  enum class Take { text, quantity, name, word };
  struct Slot {
    std::size_t number = 0;
    Take take = Take::text;
    bool is_name() const { return take == Take::name || take == Take::word; }
  };

  explicit MessageFormat(std::string_view text);
  static MessageFormat of_key(std::string_view key);  // of a phrase

  // pieces()[0] slots()[0] pieces()[1] ... : one piece more than slots.
  const std::vector<std::string>& pieces() const { return pieces_; }
  const std::vector<Slot>& slots() const { return slots_; }
  std::size_t arguments() const;  // one more than the largest number
  std::size_t letters() const;    // bytes outside slots
  bool has_letters() const;       // outside slots, any of the alphabet
  std::string key() const;        // of a phrase with these pieces

  // What fills the slots when `text` was made of this format, by number. Where there are several
  // ways the slots in front take least; a number that stands twice has the same text twice.
  std::optional<std::vector<std::string>> match(std::string_view text) const;

  // Chinese characters and Latin letters or digits that meet at a slot get a space between them,
  // two Chinese ones none. Precondition: as many arguments as the slots' numbers ask for.
  std::string filled(const std::vector<std::string>& arguments) const;

 private:
  bool match_from(std::size_t slot,
                  std::string_view text,
                  std::vector<std::string>& arguments) const;

  std::vector<std::string> pieces_;
  std::vector<Slot> slots_;
};

}  // namespace zeroplan
