// zeroplan.graph/1: what `zeroplan trace` writes (docs/trace.md), read into a Model and the graph
// that it is planned by.
#pragma once

#include <string>

#include "base/json.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

// Whether a model's document is a traced graph and no Hugging Face config.
bool is_traced_document(const Json& document);

// Throws InputError with every problem that is found, at its JSON pointer. `recorded`: the document
// was made for a config (recorded_class.hpp).
Model read_traced_document(const Json& document,
                           const std::string& file,
                           const std::string& pointer,
                           bool recorded = false);

}  // namespace zeroplan
