// Files with one JSON document a line: recordings, measurements, batches.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/json.hpp"

namespace zeroplan::evidence {

// Calls `reader` for the document of each line; empty lines are skipped. What it throws as an
// InputError or SizeOverflow, and what is wrong with the line itself, is returned with `file` and
// with the line in front of the pointer ("line 12: /measured/mfu"), and the next lines go on.
std::vector<Diagnostic> read_json_lines(
    std::string_view text,
    const std::string& file,
    const std::function<void(const JsonDocument&, int)>& reader);

// "line 12: /init/groups"; a pointer that names its line itself stays.
std::string pointer_in_line(int line, const std::string& pointer);

}  // namespace zeroplan::evidence
