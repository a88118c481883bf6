// The files of other tools that start a plan, and how one names what lies beside it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/enum_names.hpp"
#include "base/phrase.hpp"
#include "foreign/form_text.hpp"

namespace zeroplan::foreign {

enum class Form { llama_factory, axolotl, accelerate, trl, trainer, shell, sbatch, openrlhf, verl };
inline constexpr EnumNames<Form, 9> kFormNames{{"llama-factory",
                                                "axolotl",
                                                "accelerate",
                                                "trl",
                                                "trainer",
                                                "shell",
                                                "sbatch",
                                                "openrlhf",
                                                "verl"}};
// A command whose arguments are the user's own, with what the plan has in their place.
inline constexpr bool is_own_command(Form form) {
  return form == Form::openrlhf || form == Form::verl;
}

// How the file names what lies beside it, and itself.
struct FormPlace {
  std::string file;         // "llamafactory.yaml": in the line that starts it; "....json" is JSON
  std::string ds_config;    // "ds_config.json"
  std::string model;        // a folder, a name of the hub
  std::string script = {};  // that accelerate starts; empty: the user's own
  std::optional<double> learning_rate = {};  // the folder's; else the usual one
  // The user's own settings that no plan has, data and rates; all of them where it is a command.
  FormSettings kept = {};
  std::vector<Phrase> notes = {};  // more that the file does not say
};

}  // namespace zeroplan::foreign
