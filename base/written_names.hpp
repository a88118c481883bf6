// Names as people write them: in any case, with or without separators; and tables that list several
// names of one thing with bars between them ("bfloat16|brainfloat16").
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace zeroplan {

// Lower case, without the characters of `separators`.
std::string folded(std::string_view text, std::string_view separators);

// What stands behind the last slash: "meta-llama/Llama-3.1-8B" -> "Llama-3.1-8B".
std::string_view without_organization(std::string_view name);

// The first of the names between the bars for which `matches` holds; empty where it is none.
template <typename Predicate>
std::string_view first_name(std::string_view names, const Predicate& matches) {
  while (!names.empty()) {
    const std::string_view one = names.substr(0, names.find('|'));
    if (matches(one)) return one;
    names.remove_prefix(std::min(one.size() + 1, names.size()));
  }
  return "";
}

}  // namespace zeroplan
