// The lint/1 document of docs/contract.md section 5: what `lint --json` prints of one file.
#pragma once

#include "base/json.hpp"
#include "model/lint/lint.hpp"

namespace zeroplan {

// `root`: the file's document, which knows where each key stands.
Json to_json(const LintReport& report, const Json& root);

}  // namespace zeroplan
