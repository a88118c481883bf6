// Classes of transformers that were recorded once for all their configs: zeroplan.family/1
// (docs/trace.md), in data/families.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/phrase.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

// What a recorded class says of a config.
struct RecordedClass {
  std::optional<Json> document;  // the zeroplan.graph/1 that tracing the config's class would give
  SequenceRange lengths;         // of sequences that the document is of
  ReleaseRange releases;         // of transformers that it stands for
  // Where there is none: a key whose value decides more than sizes, and what was recorded.
  std::string key;
  Phrase expected;
};

// Nothing where no class of that type was recorded.
std::optional<RecordedClass> recorded_class(const Json& config,
                                            const std::string& model_type,
                                            const ModelUse& use);

// Values of model_type.
std::vector<std::string> recorded_types();
bool is_recorded(const std::string& model_type);
// Whether that class of the type was recorded: its usual one, or one beside it.
bool is_recorded_class(const std::string& model_type, std::string_view architecture);
// The one whose usual class has that stem; "" where there is none.
std::string recorded_type_of(std::string_view stem);

// A class's name without what is built on it: "Qwen3Moe" of "Qwen3MoeForCausalLM".
std::string_view class_stem(std::string_view class_name);
// Whether two names are one class's: repositories spell KimiK25 what others call Kimi_K25.
bool is_same_class(std::string_view one, std::string_view other);

// A zeroplan.family/1 with the parts that its documents share in each of them.
Json parse_family(std::string_view text, const std::string& file);

// By one such. Throws InputError where it is none; `file` is for messages.
RecordedClass read_recorded(const Json& family,
                            const std::string& file,
                            const Json& config,
                            const ModelUse& use);

}  // namespace zeroplan
