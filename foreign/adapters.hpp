// Settings of adapters, several in files of other tools, as one `method`.
#pragma once

#include "foreign/said_elsewhere.hpp"

namespace zeroplan::foreign {

// `said`: the parts of `method` by the rows of configs/foreign.json. Behind the last setting of a
// part; sets the method, unless `meaning` has one already.
void finish_adapters(Tool tool, const SaidParts& said, Meaning& meaning);

}  // namespace zeroplan::foreign
