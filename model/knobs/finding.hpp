// A finding: something about a user's configuration that is worth a line, as `lint` prints it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/phrase.hpp"

namespace zeroplan {

enum class Severity { error, warning, info };

constexpr std::string_view name(Severity severity) {
  switch (severity) {
    case Severity::error:
      return "error";
    case Severity::warning:
      return "warning";
    case Severity::info:
      return "info";
  }
  return "";
}

struct Finding {
  Severity severity = Severity::info;
  std::string pointer;  // "/zero_optimization/stage"; "" for the whole file
  std::string code;     // stable words: "batch-identity"
  Phrase message;       // what is so
  Phrase fix;           // what to do; may be empty
  // What the two were made of: the text of the rule's row, and what fills {0}, {1}, ...
  int text = 0;
  std::vector<Phrase> arguments;
};

}  // namespace zeroplan
