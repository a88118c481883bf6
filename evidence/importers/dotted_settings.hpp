// "  hidden_size ..................................... 4096": how Megatron and DeepSpeed print
// their arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace zeroplan::evidence {

struct DottedSetting {
  std::string_view name;
  std::string_view value;  // to the end of the line
  std::optional<std::int64_t> integer() const;
};

// The setting at the end of a line: a name, two dots or more, a value. Nothing where the line is no
// such; a name that is so long that no dots are left is not found.
std::optional<DottedSetting> dotted_setting(std::string_view line);

}  // namespace zeroplan::evidence
