// What will be run: a scenario after precedence, defaults, `auto` and degrees (docs/contract.md
// section 1).
//
// resolve() is the only way from a Scenario to a Plan. Everything below takes a Plan: there are no
// optionals left in it, and whatever was filled in is a sentence in `assumptions`.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/phrase.hpp"
#include "model/cost/coefficients.hpp"
#include "model/cost/parallel_layout.hpp"
#include "model/cost/profile.hpp"
#include "model/engine/ddp.hpp"
#include "model/engine/engine_config.hpp"
#include "model/engine/fsdp.hpp"
#include "model/engine/pipeline_schedule.hpp"
#include "model/hardware/hardware.hpp"
#include "model/knobs/ds_config.hpp"
#include "model/plan/scenario.hpp"
#include "model/plan/training_loop.hpp"
#include "model/release_rule.hpp"
#include "model/software.hpp"
#include "model/transformer.hpp"
#include "model/workload.hpp"

namespace zeroplan {

struct Software {
  DeepSpeedVersion deepspeed = kNewestDeepSpeed;
  Version deepspeed_release;
  Version torch;
  bool torch_said = false;  // else the newest was taken
  Version transformers;
  Version trl;  // 0.0.0: none of its trainers runs
  Version accelerate;
  std::vector<Phrase> conflicts;  // why these do not run the model together
  RuleSwitches switched;          // of the rules about the five

  bool deepspeed_acts(ReleaseRule rule) const {
    return acts(rule, Package::deepspeed, deepspeed_release, switched);
  }
  bool torch_acts(ReleaseRule rule) const { return acts(rule, Package::torch, torch, switched); }
  bool transformers_act(ReleaseRule rule) const {
    return acts(rule, Package::transformers, transformers, switched);
  }
  bool trl_acts(ReleaseRule rule) const { return acts(rule, Package::trl, trl, switched); }
  bool accelerate_acts(ReleaseRule rule) const {
    return acts(rule, Package::accelerate, accelerate, switched);
  }
};

struct TrainerSettings;     // model/plan/trainer.hpp
struct EvaluationSettings;  //
struct BesideModels;        // model/plan/beside.hpp

struct Plan {
  std::string id;
  std::shared_ptr<const Model> model;  // a rank's own; shared: strategies of one model are many
  std::shared_ptr<const Model> whole_model;   // what all ranks of one copy hold together
  std::shared_ptr<const Model> tensor_model;  // all stages' part on a rank of tensor parallelism
  std::vector<LayerRange> stages;             // of the pipeline; empty: none
  std::int64_t stage = 0;                     // whose rank `model` and `engine_parameters` are
  bool shows_first_stage = false;  // GPU memory of the first stage, not of that with least room
  Cluster cluster;
  Coefficients coefficients;               // of the cluster's GPUs, the profile's over them
  std::shared_ptr<const Profile> profile;  // null: the built-in one
  Workload workload;
  Software software;
  Degrees degrees;
  DsConfig ds_config;   // no `auto` left; batch sizes, precision and stage explicit
  EngineConfig engine;  // of rank 0; under FSDP and DDP its dtypes and batch sizes alone count
  FsdpConfig fsdp;      // where workload.engine is fsdp
  DdpConfig ddp;        // where it is ddp
  std::vector<EngineParameter> engine_parameters;  // one for each of model->parameters
  std::vector<int> wrapped_block;  // of each parameter, -1: outside (wrapped_blocks)
  std::shared_ptr<const TrainerSettings> trainer;  // null: one model, trained on a loss of tokens
  std::shared_ptr<const EvaluationSettings> evaluation;  // null: none was said
  TrainingLoop loop;                                     // beside its steps
  std::shared_ptr<const BesideModels> beside;            // null: no other model is on these GPUs
  bool loads_whole = false;   // each GPU has all of a model that is sharded, until it is sharded
  bool inference = false;     // of a model that is not trained: forward passes without gradients
  bool adapters_off = false;  // of the trained model without its adapters
  ModelPart part = ModelPart::whole;  // of a trained model of two, the one that runs
  std::vector<Phrase> assumptions;
  std::vector<Phrase> warnings;
  std::array<Origin, kScenarioKeyCount> origins;  // where each key was said, for messages

  ParallelLayout layout() const { return {cluster, degrees}; }
};

// The embedded runtime without GPUs: its kernels are calls, and nothing runs beside anything else.
inline bool runs_on_cpu_ranks(const Plan& plan) {
  return plan.workload.engine == TrainingEngine::embedded && plan.cluster.gpu.is_cpu();
}

// DeepSpeed itself, or the embedded runtime, which follows its policies (model/engine).
constexpr bool runs_deepspeed(const Workload& workload) {
  return workload.engine == TrainingEngine::deepspeed ||
         workload.engine == TrainingEngine::embedded;
}

// ZeRO-3, of both.
inline bool runs_zero3(const Plan& plan) {
  return runs_deepspeed(plan.workload) && plan.engine.stage == 3;
}

// Whether accelerate casts frozen weights to fp32 as FSDP2 shards them.
bool casts_frozen_weights(const Plan& plan);

// Which transformer block each parameter stands in: a child of an outermost list of modules, as
// wrapping policies by class name find it. -1: in none (embeddings, last norm, head).
std::vector<int> wrapped_blocks(const Model& model);

// --- pipelines: a plan describes a rank of one stage, of the first as resolve() makes it ---
// The same for a rank of another stage. Precondition: plan.stages is not empty.
Plan stage_plan(const Plan& plan, std::int64_t stage);
// Stages that differ in more than their place: the first, the last, and of those between with as
// many layers the one with the most micro-batches alive.
std::vector<std::int64_t> distinct_stages(const Plan& plan);
// The one of them that stands for `stage`.
std::int64_t representative_stage(const Plan& plan, std::int64_t stage);
// Micro-batches whose activations a rank of the plan's stage holds at once; 1 without a pipeline.
std::int64_t live_micro_batches(const Plan& plan);

// `error` with the places where the user said the values it is about: what is found to be wrong
// only when a plan is predicted knows the key and not the file.
InputError with_origins(const InputError& error, const Plan& plan);

class MadeModels;  // model/plan/resolver.hpp

// What resolve() may take as already known, so that many plans of one model and cluster are cheap.
struct Prepared {
  std::shared_ptr<const Model> model;
  // As transformers 5 has its experts; null: the same.
  std::shared_ptr<const Model> model_with_fused_experts;
  std::shared_ptr<const Cluster> cluster;
  std::shared_ptr<const DsConfig> ds_config;  // instead of the scenario's, where it is there
  std::shared_ptr<const Profile> profile;     // null: the scenario's is read, if it has one
  RuleSwitches switched;                      // of the table of releases: none in a user's plan
  std::optional<Version> class_of;  // the transformers whose recording of the class is taken; none:
                                    // the plan's
  std::shared_ptr<MadeModels> made = nullptr;  // null: each plan makes its own
};

// Throws InputError (all problems of one kind together) for a scenario without model or cluster,
// values that contradict each other, degrees that leave a remainder, and a model that is not
// planned.
Plan resolve(const Scenario& scenario);
Plan resolve(const Scenario& scenario, const Prepared& prepared);
// Whether the Trainer, where nobody says, takes torch's AdamW with fused=True.
bool trainer_asks_for_fused(const Software& software);
// What the model's class is asked for in this scenario.
ModelUse model_use_of(const Scenario& scenario, ExpertLayout experts);

// A search tries no other micro-batch than the one that the model was traced with, where its class
// loops over the images of a batch.
void keep_traced_batch(Scenario& scenario, const Model& model, const Origin& searcher);
// Reads model and cluster of a scenario once.
Prepared prepare(const Scenario& scenario);
// The profile a scenario names or holds; null without one. Throws InputError for a bad one.
std::shared_ptr<const Profile> read_profile_of(const Scenario& scenario);
// The cluster it names or holds, with the profile's figures (may be null) where one is unspecified.
// Precondition: the scenario has a cluster.
std::shared_ptr<const Cluster> read_cluster_of(const Scenario& scenario, const Profile* profile);
// The ds_config a scenario names or holds.
DsConfig read_ds_config_of(const ExplicitValue& said);

// Says in a copy of the plan's file that it trains in fp32, where that follows from what is
// missing.
void say_precision(const Plan& plan, DsConfig& config);

// The ds_config as it is written for the plan's frontend: the Trainer's keys are "auto" there.
DsConfig written_ds_config(const Plan& plan);

// The resolved scenario document: every workload key explicit; resolving it again gives it again.
Json scenario_document(const Plan& plan, const Scenario& scenario);

// How the optimizer's parameter groups are made, with one-dimensional parameters `apart` (no weight
// decay) or all in one group.
std::vector<EngineParameter> engine_parameters(const Model& model, bool apart);
// The plan's model under its optimizer: the Trainer's own keeps them apart, and OpenRLHF's
// (get_optimizer_grouped_parameters); to one that DeepSpeed makes from its file the Trainer hands
// all as one group (integrations/deepspeed.py deepspeed_optim_sched), and so does a native script.
std::vector<EngineParameter> engine_parameters(const Plan& plan);
// Buffers that the plan's engine holds on a rank besides activations and gathered weights.
std::vector<EngineBuffer> engine_buffers(const Plan& plan, int rank);

}  // namespace zeroplan
