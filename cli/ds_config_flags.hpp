// Keys of ds_config.json as flags: --stage 3, --offload-optimizer cpu, --reduce-bucket-size 2e8.
//
// A flag is a key by its name, or by the end of its pointer, where one key alone has it; "stage3_"
// and "zero_" in front may be left out, --zero is the stage, and a section of offloading stands for
// its device. What a flag says counts over the file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "model/knobs/knobs.hpp"
#include "model/plan/scenario.hpp"

namespace zeroplan::cli {

// One key that was said as a flag.
struct DsConfigFlag {
  std::string flag;  // as it was typed
  Knob knob{};
  Json value;
};

// Absent for flags that are no key, or several ("--device", "--enabled"), or a list or a section.
std::optional<Knob> knob_of_flag(std::string_view flag);

// The text as a value of the key: "auto", true, 3, 2e8, cpu. Throws InputError that names the flag.
Json ds_config_value(Knob knob, const std::string& flag, const std::string& text);

// The ds_config that was said otherwise (a file's name or a document; null: none), with the flags'
// keys in it. Throws InputError where the file cannot be read.
ExplicitValue with_ds_config_flags(const ExplicitValue* said,
                                   const std::vector<DsConfigFlag>& flags);

}  // namespace zeroplan::cli
