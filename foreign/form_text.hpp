// Settings of another tool as the text that it reads: YAML, JSON, words of a command line.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"

namespace zeroplan::foreign {

// "per_device_train_batch_size", 4. A value is what stands in the document; objects are one deep in
// YAML's lines and deeper in braces.
struct FormSetting {
  std::string name;
  Json value;
  std::string comment = {};  // behind the value, in YAML alone
  bool planned = true;       // false: the run needs it, and no plan has it
};
using FormSettings = std::vector<FormSetting>;

// A line each; numbers so that YAML 1.1 reads numbers (1.0e-05, and not 1e-05, which is a text
// there).
std::string yaml_lines(const FormSettings& settings);
// One object.
std::string json_text(const FormSettings& settings);
// "--name value ...", for transformers' HfArgumentParser: objects as JSON, lists as words, a null
// as the name alone. Quoted for sh.
std::string argument_words(const FormSettings& settings, const std::string& separator);
// "name=value ...", for Hydra: a name that no row knows is one that the user added. Quoted for sh.
std::string override_words(const FormSettings& settings, const std::string& separator);

}  // namespace zeroplan::foreign
