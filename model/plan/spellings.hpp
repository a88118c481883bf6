// What people write for a value of the scenario's keys, where it is not our own word for it:
// PyTorch's, Hugging Face's and DeepSpeed's names (bfloat16, flash_attention_2, adamw_torch), other
// cases (LoRA), and names of things that exist and are not modelled.
//
// Compared without case and separators.   Checked by tests/unit/model/plan/spellings_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/plan/scenario.hpp"

namespace zeroplan {

// Our word for `text` as a value of that key: one of `choices` ("a|b|c") in whatever case, or what
// another name of it stands for. Absent for a word nobody knows, and for what is not modelled.
std::optional<std::string_view> meaning_of(ScenarioKey key,
                                           std::string_view choices,
                                           std::string_view text);

// Why a value that exists is not modelled, with what comes nearest; empty for other words.
std::string_view why_not_modelled(ScenarioKey key, std::string_view text);

// Tokens as people write them: 4096, 4k and 4K (4 x 1024), 1M. Absent for anything else.
std::optional<std::int64_t> parse_tokens(std::string_view text);

// true, yes, on, 1 and their opposites. Absent for anything else.
std::optional<bool> parse_switch(std::string_view text);

}  // namespace zeroplan
