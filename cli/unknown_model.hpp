// A config.json whose class zeroplan does not know: the class itself is asked, where the user's
// Python has transformers.
#pragma once

#include <iosfwd>

#include "cli/arguments.hpp"
#include "cli/language/translation.hpp"

namespace zeroplan {

// Where the model of `arguments` is a config whose memory and time are not known, the document that
// `zeroplan trace` makes of it stands for it from here on. It is kept in the user's cache, by the
// config, the releases and the attention. Nothing happens where no Python has transformers, or
// where tracing fails, which `log` is told: the command refuses the model then.
void trace_unknown_model(Arguments& arguments, std::ostream& log, const Translation& words);

}  // namespace zeroplan
