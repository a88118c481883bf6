// `zeroplan rehearse --find micro-batch|sequence`: the largest that runs, by bisection.
//
// The command says where the number stands: by {} in any of its words, or by an argument whose name
// is known (--per_device_train_batch_size 4, --max_length=2048). Sequences are multiples of 128.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/language/translation.hpp"
#include "cli/rehearsal_document.hpp"

namespace zeroplan::cli {

enum class Find { micro_batch, sequence };

// "micro-batch" and "sequence"; throws InputError for another word.
Find parse_find(const std::string& word);
std::string_view name(Find find);

// A command with a place for a number.
class NumberedCommand {
 public:
  // Throws InputError where no place is found, or several arguments could be it.
  NumberedCommand(std::vector<std::string> command, Find find);

  std::vector<std::string> with(std::int64_t number) const;
  // The number that stands there; absent where {} does.
  std::optional<std::int64_t> said() const { return said_; }

 private:
  std::vector<std::string> command_;  // with {} for the number
  std::optional<std::int64_t> said_;
};

struct Tried {
  std::int64_t number = 0;
  Outcome outcome = Outcome::failed;
  Bytes peak_reserved;
};

struct Found {
  std::optional<std::int64_t> largest;  // that ran
  std::vector<Tried> tried;             // in their order
};

struct SearchRange {
  std::int64_t step = 1;  // numbers are multiples of it
  std::int64_t first = 1;
  std::int64_t most = 1;
};
// From what the command said, or from a usual start.
SearchRange range_of(Find find, std::optional<std::int64_t> said);

// Doubles and halves until one runs and one does not, then bisects. A try that is neither `ran` nor
// out of memory ends the search.
Found find_largest(const SearchRange& range, const std::function<Tried(std::int64_t)>& attempt);

std::string found_text(Find find, const Found& found, const Translation& words);
Json to_json(Find find, const Found& found);

}  // namespace zeroplan::cli
