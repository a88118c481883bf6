// A config.json whose class zeroplan does not know: the class itself is asked, where the user's
// Python has transformers.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "base/json.hpp"
#include "cli/arguments.hpp"
#include "cli/language/translation.hpp"
#include "model/transformer.hpp"
#include "rehearsal/trace.hpp"

namespace zeroplan::cli {

// The document that `zeroplan trace` makes of a config whose memory and time are not known.
struct TracedModel {
  Json document;
  std::string place;  // in the user's cache, by the config, the releases and the attention
};

// Sequences of the request on the side of a config's windows and chunks of attention on which
// `sequence` tokens are: beyond one, a class runs other operations (masks).
void stay_between_windows(rehearsal::TraceRequest& request,
                          const Json& config,
                          std::int64_t sequence);

// The document of a scenario's `model` (hf_config.hpp), which `file` says; nothing where the model
// is known, no Python has transformers, or tracing fails, which `log` is told: the reader refuses
// the model then. Threads that ask at once wait for each other, so that a class is asked once.
std::optional<TracedModel> traced_if_unknown(const Json& model,
                                             const std::string& file,
                                             const ModelUse& use,
                                             std::ostream& log,
                                             const Translation& words);

// The scenario with traced_if_unknown() of its model in the model's place.
Scenario with_known_model(Scenario scenario, std::ostream& log, const Translation& words);

// `arguments` with the document in the place of their model.
void trace_unknown_model(Arguments& arguments, std::ostream& log, const Translation& words);

}  // namespace zeroplan::cli
