// The failures that logs tell of, as data: configs/failures.json has a row for each, with the words
// that a log says, the cause, what to look at, and the remedy.
//
// A row's words are found in any case and any white space. "{name}" in them takes what stands
// there, up to the words behind it in the same line, or one word; "{name}" in its texts is filled
// with it. A text may be a list: the first whose names are all known is said. One row speaks for a
// line: the first of the table, so what is special stands before what is general. Checked by
// tests/unit/evidence/failure_table_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/enum_names.hpp"
#include "base/phrase.hpp"
#include "evidence/log_text.hpp"

namespace zeroplan::evidence {

enum class FailureKind {
  stops,    // ends the run
  slows,    // the run goes on, worse
  note,     // harmless by itself; told where nothing else is
  follows,  // a consequence of something else; told where nothing else is
  where,    // not a failure: where in the program an out-of-memory error stands
};
inline constexpr EnumNames<FailureKind, 5> kFailureKindNames{
    {"stops", "slows", "note", "follows", "where"}};

// Words with slots: what stands between them, and the name of the slot behind each but the last,
// where that is empty without one.
struct FailureWords {
  std::vector<std::string> pieces;
  std::vector<std::string> names;
};

struct KnownFailure {
  std::string code;  // "no-kernel-image"
  FailureKind kind = FailureKind::stops;
  int at_least = 1;  // how often a log says it before it means anything
  std::vector<FailureWords> words;
  std::vector<std::string> cause, check, remedy;  // "check" may have none
};

using FailureValues = std::map<std::string, std::string, std::less<>>;

struct FoundFailure {
  const KnownFailure* failure = nullptr;
  std::size_t at = 0;  // in the text of the log
  FailureValues values;
};

class FailureTable {
 public:
  // A document zeroplan.failures/1 of the repository: what is wrong in it is a programmer's error.
  FailureTable(std::string_view document, const std::string& file);
  FailureTable(const FailureTable&) = delete;
  FailureTable& operator=(const FailureTable&) = delete;

  const std::vector<KnownFailure>& rows() const { return rows_; }
  // In the order of the text; of one line the first row, and every row that says where.
  std::vector<FoundFailure> find(const LogText& log) const;

 private:
  struct Opening {
    std::size_t row;
    const FailureWords* words;
  };
  std::vector<KnownFailure> rows_;
  // By the first two characters of their words, in small letters.
  std::unordered_map<std::uint16_t, std::vector<Opening>> openings_;
};

// configs/failures.json, read once.
const FailureTable& known_failures();

// The first of the texts whose names all have a value, filled; empty where there is none.
Phrase filled_text(const std::vector<std::string>& texts, const FailureValues& values);

}  // namespace zeroplan::evidence
