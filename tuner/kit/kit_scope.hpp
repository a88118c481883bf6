// Which plans the scripts of a kit train as they were planned.
#pragma once

#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan::tuner {

// What of the plan the scripts of configs/kit do not do, one sentence each; empty: they train it.
// A kit for a plan with such a sentence has documents and no script: a script that started
// something else than was planned would be worse.
std::vector<Phrase> beyond_kit(const Plan& plan);

// The same of transformers' Trainer, whoever starts it (forms.hpp). Four-bit weights are not among
// them: other tools load those.
std::vector<Phrase> beyond_trainer(const Plan& plan);

// Whether train_trl.py trains it: a trainer of TRL with the models that it makes by itself, where
// it puts them.
bool trains_with_trl(const Plan& plan);

// Whether a plan runs under FSDP or DDP, whose kits start through accelerate.
bool starts_with_accelerate(const Plan& plan);

}  // namespace zeroplan::tuner
