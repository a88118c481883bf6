// A config against one document of a recorded class (recorded_class.hpp).
#pragma once

#include <cstdint>
#include <optional>

#include "base/json.hpp"
#include "model/families/recorded_sizes.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

struct RecordedMatch {
  // The first key that is another than when the document was recorded; absent: the document is for
  // the config.
  std::optional<NotRecorded> problem;
  int passed = 0;         // checks before it; those of what has documents of its own come first
  SequenceRange lengths;  // of sequences that the document is of
};

RecordedMatch matched(const Json& document, const RecordedValues& values, std::int64_t sequence);

}  // namespace zeroplan
