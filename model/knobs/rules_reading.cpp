// What reading a file notices (ds_config_reader.cpp), as rows of the table of rules.
#include <algorithm>
#include <array>

#include "base/check.hpp"
#include "model/knobs/rule_view.hpp"

namespace zeroplan::rules {
namespace {

constexpr std::array kNotes = {
    RuleInfo{.code = note_code::kUnknownKey,
             .severity = Severity::info,
             .summary = "every key is one that DeepSpeed reads",
             .cost = "the key does nothing, and nobody says so",
             .texts = {{"the key is not known and has no influence"},
                       {"the key is not known; DeepSpeed passes it to the class that is named "
                        "here"}},
             .source = "runtime/config.py:_initialize_params"},
    RuleInfo{.code = note_code::kMisspelledKey,
             .severity = Severity::warning,
             .summary = "no key is nearly one that DeepSpeed reads",
             .cost = "outside the checked sections a misspelled key is ignored without a word",
             .texts = {{"the key is not known and has no influence", "did you mean {0}?"},
                       {"the key is not known; DeepSpeed passes it to the class that is named "
                        "here",
                        "did you mean {0}?"}},
             .source = "runtime/config.py:_initialize_params"},
    RuleInfo{.code = note_code::kMisplacedKey,
             .severity = Severity::warning,
             .summary = "no key stands outside the section in which DeepSpeed reads it",
             .cost = "outside the checked sections such a key is ignored without a word",
             .texts = {{"the key is not known here and has no influence", "the key belongs at {0}"},
                       {"the key is not known here and has no influence", "did you mean {0}?"}},
             .source = "runtime/config.py:_initialize_params"},
    RuleInfo{
        .code = note_code::kRejectedKey,
        .severity = Severity::error,
        .summary = "zero_optimization and other checked sections have only known keys",
        .cost = "DeepSpeed refuses to start; releases before the check ignored the key",
        .texts = {{"the key is not known; old releases ignored it, DeepSpeed {1} and later "
                   "refuse to start with it"},
                  {"the key is not known; old releases ignored it, DeepSpeed {1} and later "
                   "refuse to start with it",
                   "did you mean {0}?"},
                  {"the key is not known; old releases ignored it, DeepSpeed {1} and later "
                   "refuse to start with it",
                   "the key belongs at {0}"},
                  {"DeepSpeed refuses this key, which it does not know"},
                  {"DeepSpeed refuses this key, which it does not know", "did you mean {0}?"},
                  {"DeepSpeed refuses this key, which it does not know", "the key belongs at {0}"},
                  {"the key is read since DeepSpeed {1} and refused before",
                   "remove it or upgrade"}},
        .source = "runtime/config_utils.py:DeepSpeedConfigModel"},
    RuleInfo{.code = note_code::kDeprecatedKey,
             .severity = Severity::warning,
             .summary = "keys have their present names",
             .cost = "an old name is honoured only as long as DeepSpeed keeps it",
             .texts = {{"the key is an old one, read as {0}", "write {0}"},
                       {"the key is an old one, read as {0}", "write {\"device\": \"cpu\"} there"},
                       {"the key is an old one, read as pin_memory of every section that is "
                        "offloaded; the described releases of DeepSpeed ignore it",
                        "write \"pin_memory\" in offload_optimizer or offload_param"}},
             .source = "runtime/zero/config.py:DeepSpeedZeroConfig"},
    RuleInfo{.code = note_code::kAlternativeKey,
             .severity = Severity::info,
             .summary = "keys have the names of the documentation",
             .cost = "nothing in DeepSpeed; other tools look for the documented name",
             .texts = {{"read as {0}", "write {0}"}},
             .source = "runtime/zero/config.py:DeepSpeedZeroConfig"},
    RuleInfo{.code = note_code::kConflictingKeys,
             .severity = Severity::warning,
             .summary = "a setting has one spelling in a file",
             .cost = "which of the two counts depends on the release",
             .texts = {{"{0} is given too and counts", "remove this key"}},
             .source = "runtime/config_utils.py:DeepSpeedConfigModel._process_deprecated_field"},
    RuleInfo{.code = note_code::kFloatInteger,
             .severity = Severity::info,
             .summary = "counts are written as integers",
             .cost = "nothing in DeepSpeed; strict readers refuse 5e8 where an integer is due",
             .texts = {{"{0} is read as the integer {1}"}},
             .source = "runtime/config_utils.py:pp_int"},
    RuleInfo{
        .code = note_code::kRoundedNumber,
        .severity = Severity::error,
        .summary = "counts of elements have no fraction",
        .cost = "DeepSpeed with pydantic 2 (0.15 and later) refuses to start",
        .texts = {{"{0} is read as {1}; DeepSpeed with pydantic 2 refuses a fraction", "write {1}"},
                  {"{0} has a fraction, which DeepSpeed refuses", "write {1}"}},
        .source = "runtime/zero/config.py:DeepSpeedZeroConfig"},
    RuleInfo{.code = note_code::kExponentSign,
             .severity = Severity::error,
             .summary = "a count of elements is not below one",
             .cost = "DeepSpeed with pydantic 2 refuses to start; older ones read 0: nothing is "
                     "prefetched and communication is no longer hidden",
             .texts = {{"{0} is read as 0 elements", "was {1} meant?"},
                       {"{0} is below one element, which DeepSpeed refuses", "was {1} meant?"}},
             .source = "runtime/zero/config.py:DeepSpeedZeroConfig"},
    RuleInfo{
        .code = note_code::kQuotedValue,
        .severity = Severity::info,
        .summary = "numbers and booleans stand without quotes",
        .cost = "DeepSpeed computes with the text in some places",
        .texts = {{"the value stands in quotes and is read as {0}", "write {0} without quotes"}},
        .source = "runtime/config.py:get_scalar_param"},
    RuleInfo{.code = note_code::kNumberForBoolean,
             .severity = Severity::info,
             .summary = "switches are true or false",
             .cost = "nothing in DeepSpeed; other readers refuse it",
             .texts = {{"a number is read as {0}"}},
             .source = "runtime/config.py:get_scalar_param"},
    RuleInfo{.code = note_code::kOtherSpelling,
             .severity = Severity::info,
             .summary = "values are spelled as DeepSpeed compares them",
             .cost = "a comparison by letter may miss it",
             .texts = {{"{0} is read as {1}", "write {1}"}},
             .source = "runtime/config.py:DtypeEnum"},
    RuleInfo{.code = note_code::kNullValue,
             .severity = Severity::info,
             .summary = "what is not meant is left out",
             .cost = "null is not everywhere the same as nothing",
             .texts = {{"null is read as not given"}},
             .source = "runtime/config_utils.py:DeepSpeedConfigModel"},
    RuleInfo{
        .code = note_code::kAutoSection,
        .severity = Severity::warning,
        .summary = "\"auto\" stands for a value, not for a section",
        .cost = "the Trainer fills keys inside sections and leaves this text as it is",
        .texts = {{"\"auto\" stands for a whole section and is read as not given",
                   "leave the section out or write its keys"}},
        .source = "transformers/integrations/deepspeed.py:HfTrainerDeepSpeedConfig.fill_match"},
    RuleInfo{.code = note_code::kAutoUnresolved,
             .severity = Severity::warning,
             .summary = "\"auto\" is where the Trainer or DeepSpeed replaces it",
             .cost = "the text \"auto\" reaches DeepSpeed where a value is due",
             .texts = {{"neither the Trainer nor DeepSpeed replaces \"auto\" here",
                        "write a value or leave the key out"}},
             .source = "transformers/integrations/deepspeed.py:HfTrainerDeepSpeedConfig"},
    RuleInfo{.code = note_code::kBooleanZero,
             .severity = Severity::warning,
             .summary = "zero_optimization is a section",
             .cost = "the old switch means stage 1, not the stage that was wanted",
             .texts = {{"zero_optimization is {0}, which means stage {1}",
                        "write \"zero_optimization\": {\"stage\": {1}}"}},
             .source = "runtime/zero/config.py:read_zero_config_deprecated"},
    RuleInfo{.code = note_code::kDuplicateKey,
             .severity = Severity::warning,
             .summary = "no key stands twice",
             .cost = "DeepSpeed refuses such a file; other readers take the last value",
             .texts = {{"the key stands twice (again in line {0}); the last value counts",
                        "keep one: DeepSpeed refuses a file with a repeated key"}},
             .source = "runtime/config_utils.py:dict_raise_error_on_duplicate_keys"},
    RuleInfo{.code = note_code::kComments,
             .severity = Severity::info,
             .summary = "the file is plain JSON: no comments",
             .cost = "the Trainer and accelerate cannot read it",
             .texts = {{"the file has comments: DeepSpeed reads them, the Hugging Face Trainer and "
                        "accelerate do not",
                        "remove the comments for a run under the Trainer"}},
             .source = "runtime/config.py:DeepSpeedConfig.__init__"},
    RuleInfo{.code = note_code::kTrailingCommas,
             .severity = Severity::info,
             .summary = "the file is plain JSON: no comma before a closing bracket",
             .cost = "the Trainer and accelerate cannot read it",
             .texts = {{"the file has a comma before a closing bracket: DeepSpeed reads it, the "
                        "Hugging Face Trainer and accelerate do not",
                        "remove that comma for a run under the Trainer"}},
             .source = "runtime/config.py:DeepSpeedConfig.__init__"},
};

}  // namespace

std::span<const RuleInfo> reading_notes() { return kNotes; }

const RuleInfo& reading_note(std::string_view code) {
  const auto found = std::find_if(
      kNotes.begin(), kNotes.end(), [&](const RuleInfo& note) { return note.code == code; });
  ZP_CHECK(found != kNotes.end(), "no note has the code " + std::string(code));
  return *found;
}

}  // namespace zeroplan::rules
