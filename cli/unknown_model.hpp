// A config.json whose class zeroplan does not know: the class itself is asked, where the user's
// Python has transformers.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "base/json.hpp"
#include "cli/arguments.hpp"
#include "cli/language/translation.hpp"

namespace zeroplan {

// The document that `zeroplan trace` makes of a config whose memory and time are not known.
struct TracedModel {
  Json document;
  std::string place;  // in the user's cache, by the config, the releases and the attention
};

// The document of a scenario's `model` (hf_config.hpp), which `file` says; nothing where the model
// is known, no Python has transformers, or tracing fails, which `log` is told: the reader refuses
// the model then. `attention`: transformers' name, empty for its default. Threads that ask at once
// wait for each other, so that a class is asked once.
std::optional<TracedModel> traced_if_unknown(const Json& model,
                                             const std::string& file,
                                             const std::string& attention,
                                             std::ostream& log,
                                             const Translation& words);

// The scenario with traced_if_unknown() of its model in the model's place.
Scenario with_known_model(Scenario scenario, std::ostream& log, const Translation& words);

// `arguments` with the document in the place of their model.
void trace_unknown_model(Arguments& arguments, std::ostream& log, const Translation& words);

}  // namespace zeroplan
