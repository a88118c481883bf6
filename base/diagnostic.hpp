// What is wrong with a user's input, as data, and the exception that carries it to the command
// line.
//
// The text form (docs/contract.md section 3):
//   error: FILE: /json/pointer: expected X, got Y
//   hint: Z
#pragma once

#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/phrase.hpp"

namespace zeroplan {

struct Diagnostic {
  std::string file;  // path as the user wrote it, or "command line"
  std::string
      pointer;  // JSON pointer ("/zero_optimization/stage"), flag ("--seq"), or "line 3, column 7"
  Phrase expected;  // "an integer between 0 and 3"
  Phrase got;       // "\"two\""
  Phrase hint;      // may be empty
};

// What is found wrong in one document before reading it is given up: who has a thousand unknown
// keys has another file in hand, and a nearest name for each takes seconds.
inline constexpr std::size_t kMostProblems = 1000;

// "error: FILE: POINTER: expected X, got Y" and, where there is one, "\nhint: Z".
Phrase to_string(const Diagnostic& diagnostic);

// Bad input: one or more diagnostics. Exit code 2.
class InputError : public std::exception {
 public:
  explicit InputError(Diagnostic diagnostic);
  explicit InputError(std::vector<Diagnostic> diagnostics);  // at least one

  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }
  const Phrase& text() const { return text_; }  // all of them, a line each
  const char* what() const noexcept override { return text_.english().c_str(); }

 private:
  std::vector<Diagnostic> diagnostics_;
  Phrase text_;
};

// The candidates nearest to `word` by edit distance (insert, delete, replace and swap cost 1; case,
// spaces, '-', '_' and '.' are ignored), best first; at most `limit`, and none further away than a
// third of the word's length.
std::vector<std::string> nearest_names(std::string_view word,
                                       std::span<const std::string_view> candidates,
                                       std::size_t limit = 3);

// Whether `word` is surely meant to be `name`: one edit in six letters, the same parts in another
// order, or one of them the beginning of the other. Stricter than nearest_names: for places where
// foreign words are to be expected.
bool is_misspelling_of(std::string_view name, std::string_view word);

// "did you mean A, B or C?", or "" where no candidate is near.
Phrase did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

// Control characters and bytes that are no UTF-8 as \xNN: what comes from a user's file must not
// steer the terminal.
std::string printable(std::string_view text);
// The same with the values of a phrase.
Phrase printable_values(const Phrase& phrase);

// Text in double quotes, cut to 60 bytes, made printable: for `got`.
std::string in_quotes(std::string_view text);

}  // namespace zeroplan
