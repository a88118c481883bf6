// What the templates of configs/kit need to know of a plan.
#pragma once

#include <string>
#include <string_view>

#include "base/phrase.hpp"
#include "model/plan/plan.hpp"
#include "tuner/kit/kit_template.hpp"

namespace zeroplan::tuner {

KitValues kit_values(const Plan& plan);

// Whether arithmetic in 16 bits stands beside trained weights in fp32, by autocast or by FSDP's
// mixed precision; DeepSpeed's engine always keeps such.
bool mixes_precision(const Plan& plan);

// Lines "host slots=N". Hosts that nobody named are node-1, node-2, ...
std::string hostfile_text(const Cluster& cluster);

// The command that trains under LLaMA-Factory; of several hosts it is given on each, and its
// launcher.py hands the variables on to torchrun.
std::string llamafactory_line(const Cluster& cluster,
                              const std::string& file = "llamafactory.yaml");

// The script of the kit that trains the plan, "train.py".
std::string script_of(const Plan& plan);

// Where a file of the kit lies below its folder: what people open and start on top, the rest in
// kit/.
std::string kit_path(const Plan& plan, std::string_view file);

// "ZeRO-3", "FSDP2, full sharding", "DDP".
Phrase engine_text(const Plan& plan);

// The first host without who logs in: what other processes connect to.
std::string first_address(const Cluster& cluster);
// OMP_NUM_THREADS as the plan says it. torchrun and accelerate set 1 for several processes of a
// node, which makes CPU Adam slow: what a plan of DeepSpeed leaves open is then the cores of a
// rank.
std::string threads_setting(const Plan& plan);

// requirements.txt: the releases of the plan.
std::string requirements_text(const Plan& plan);

// Lines KEY=VALUE without comments: the deepspeed launcher takes every line for a variable
// (launcher/runner.py main).
std::string environment_text(const Plan& plan);

}  // namespace zeroplan::tuner
