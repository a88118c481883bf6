// --from FILE: a file that starts a training elsewhere, as a scenario. LLaMA-Factory's and
// axolotl's YAML, accelerate's configuration, arguments of transformers' Trainer and of TRL as
// YAML, JSON or a shell line, job scripts of sbatch that start them. Files that these name are
// read, too.
#pragma once

#include <map>
#include <string>

#include "base/phrase.hpp"
#include "foreign/said_elsewhere.hpp"

namespace zeroplan::foreign {

// Reads `path` ("-": standard input). A script that starts several trainings is read up to the
// first. `flags`: what the command line says beside it. Throws InputError for a file of none of
// these kinds, with the option that takes it where there is one, and for what is not planned.
Meaning read_from(const std::string& path, std::map<ScenarioKey, std::string> flags = {});

// For commands that predict what is set up: DDP where the file starts neither DeepSpeed nor FSDP.
// Searches look for DeepSpeed's best strategy then.
void assume_engine(Meaning& meaning);

// What was read, line by line, what was assumed and what is not known: English sentences, a line
// each.
Phrase describe(const Meaning& meaning);

}  // namespace zeroplan::foreign
