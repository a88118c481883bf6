// OpenRLHF's own: what its commands make of their arguments, a ds_config and models beside the
// trained one.
#pragma once

#include <string>

#include "foreign/parts.hpp"

namespace zeroplan::foreign {

// "train_sft" of `openrlhf.cli.train_sft`, of a path to that file, too; empty for another program.
std::string command_of_openrlhf(const std::string& script);
// Throws InputError, at the setting, for a command of OpenRLHF's that trains something else.
void refuse_other_command(const Setting& command);

// Adds to `parts`, those by the rows of configs/foreign.json, what the command takes where nobody
// says it of adapters and samples. Before these parts are finished. Throws
// InputError for four bits without adapters.
void prepare_openrlhf(const std::string& command, PartsByKey& parts);
// Sets the ds_config, the trainer and the models beside it. Behind the last setting of the part,
// whose `command` it is.
void finish_openrlhf(const Setting& command, const PartsByKey& parts, Meaning& meaning);

}  // namespace zeroplan::foreign
