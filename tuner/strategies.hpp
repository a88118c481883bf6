// The strategies of `zeroplan fit`: ZeRO stage x offload x activation checkpointing, each with the
// ds_config that sets it up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan::tuner {

struct Strategy {
  int stage = 3;
  OffloadDevice offload_optimizer = OffloadDevice::none;
  OffloadDevice offload_parameter = OffloadDevice::none;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::none;
  // What is offloaded lies in pinned memory, whose blocks PyTorch rounds up to powers of two; in
  // sub-groups of DeepSpeed's size, of which NVMe's pool holds four and more. Without either copies
  // are slower and host memory is spared.
  bool pinned = true;
  bool small_sub_groups = false;
  // Under FSDP stage 3 is full sharding, 2 sharding of gradients and optimizer alone
  // (docs/contract.md, "FSDP through ds_config").
  TrainingEngine engine = TrainingEngine::deepspeed;
};

std::string_view name(OffloadDevice device);
// "ZeRO-3, optimizer on cpu, full checkpointing", "FSDP FULL_SHARD", "DDP".
Phrase describe(const Strategy& strategy);

// How it is called in a column: the ZeRO stage, or FSDP's sharding.
std::string sharding_name(const Strategy& strategy);

// Same stage and offload.
bool same_placement(const Strategy& a, const Strategy& b);

// The same strategy with less host memory, the fastest first. Empty where nothing is offloaded, and
// where the user's file (or null) says how.
std::vector<Strategy> with_less_host_memory(const Strategy& strategy, const DsConfig* base);

// How far offloaded: none, the optimizer, the weights too; a drive counts more than the host.
int offload_of(const Strategy& strategy);
// Whether anything of it lies in host memory by choice.
bool offloads_to_host(const Strategy& strategy);

// The reentrance of checkpoints under stage 3 that keeps fewer frozen weights gathered
// (FrozenWeightsHeld) and costs nothing; none where the plan's does.
std::optional<bool> lighter_reentrance(const Plan& plan);

// The checkpointing that was said, or that what was said needs, else without and with.
std::vector<ActivationCheckpointing> checkpointings(const Scenario& scenario);

// Whether the question leaves the engine open and the plan would train the same model under the
// Trainer alone (engine `ddp`): one GPU, DeepSpeed's engine, Hugging Face's code.
bool may_leave_deepspeed(const Scenario& scenario, const Plan& plan);

// The combinations that DeepSpeed accepts and that differ: stages 0 to 3; the optimizer offloaded
// to the CPU from stage 1 on; parameters too, and NVMe, in stage 3 (stages 1 and 2 treat NVMe as
// CPU). Of other engines what they have: FSDP's two shardings and its offload, which is of
// everything; DDP alone. Each with the checkpointing that was said, or without and with.
// Where a ds_config says a stage and nothing else, those of that stage. Throws InputError where the
// engine has none.
std::vector<Strategy> strategies(const Scenario& scenario);

// Does DeepSpeed make the optimizer's update there (resolve_muon.cpp)? It does of all but Muon.
bool does_its_update(const Strategy& strategy, OptimizerName optimizer);
// The least stage where it does so for the optimizer that was said.
std::int64_t least_stage(const Scenario& scenario);

// Of a ds_config that says a stage and nothing else, as fit's --stage makes it: what is asked for,
// and no file that strategies start from.
std::optional<std::int64_t> stage_alone(const Scenario& scenario);

// Elements: one NVMe buffer must hold the largest partition; with few ranks that passes the default
// of 10^8.
std::int64_t largest_parameter(const Model& model);

// The knobs of a strategy: those of `base` where the user gave a file, else a small file that sets
// up `optimizer` and what the community's templates do; stage, offload and what belongs to them
// replaced. No optimizer: the trainer hands its own to accelerate, which refuses a file with
// another.
DsConfig strategy_config(const Strategy& strategy,
                         const DsConfig* base,
                         const Model& model,
                         std::optional<OptimizerName> optimizer = OptimizerName::adamw,
                         Frontend frontend = Frontend::hf_trainer);
// Who reads it, as the scenario says.
Frontend frontend_of(const Scenario& scenario);

// How many knobs differ from what a file with only a stage would mean: the simpler configuration
// wins ties.
int non_default_knobs(const DsConfig& config);

}  // namespace zeroplan::tuner
