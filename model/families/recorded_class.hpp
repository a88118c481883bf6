// Classes of transformers that were recorded once for all their configs: zeroplan.family/1
// (docs/trace.md), in data/families.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.hpp"

namespace zeroplan {

// The plan's part of the question: what a config does not say.
struct RecordedUse {
  std::string attention;             // attn_implementation; empty: the class's default
  std::int64_t sequence_length = 0;  // tokens
};

// The zeroplan.graph/1 that tracing the config's class would give. Nothing where the class was not
// recorded, or not with these values of what decides more than sizes.
std::optional<Json> recorded_document(const Json& config, const RecordedUse& use);

// The document of a config by one zeroplan.family/1. Throws InputError where it is none; `file` is
// for messages.
std::optional<Json> document_of_family(const Json& family,
                                       const std::string& file,
                                       const Json& config,
                                       const RecordedUse& use);

}  // namespace zeroplan
