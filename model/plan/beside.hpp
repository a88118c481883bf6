// The models beside the trained one on its GPUs (docs/contract.md section 1, `workload.models`),
// and the forward passes without gradients that a trainer makes with them and with the trained
// model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/enum_names.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan {

enum class ModelRole { reference, reward, critic, teacher };
inline constexpr EnumNames<ModelRole, 4> kModelRoleNames{
    {"reference", "reward", "critic", "teacher"}};

enum class Placement {
  replicated,      // whole on every GPU
  sharded,         // ZeRO-3 or FSDP, as the trained model's engine does it
  cpu,             // the same with its weights in host memory
  policy_weights,  // none of its own: the trained model with its adapters switched off
  policy_engine,   // trained together with the policy, whose engine has its weights (PPO's critic)
};
inline constexpr EnumNames<Placement, 5> kPlacementNames{
    {"replicated", "sharded", "cpu", "policy_weights", "policy_engine"}};

// Whether it has weights of its own beside the trained model's engine.
constexpr bool has_own_weights(Placement placement) {
  return placement != Placement::policy_weights && placement != Placement::policy_engine;
}

struct BesideModel {
  ModelRole role = ModelRole::reference;
  std::string name;  // as it was said; empty: a copy of the trained model
  Placement placement = Placement::replicated;
  // Its engine: the trained model's with every parameter frozen, under its own stage and offload.
  // Graphs of it have no backward pass.
  std::shared_ptr<const Plan> plan;
};

// When a trainer makes a forward pass without gradients.
enum class PassMoment {
  rollout,         // behind a generation, before the step that it is for
  before_forward,  // of the trained model, in every micro-step
  after_forward,   // the same, while the trained model's activations are there
  in_loss          // the same, between its logits and its loss, which keeps what they return
};

struct InferencePass {
  PassMoment moment = PassMoment::after_forward;
  std::shared_ptr<const Plan> plan;  // whose model runs
  int model = -1;                    // index into BesideModels::models; -1: the trained model's
                                     // weights, run by its own engine
};

struct BesideModels {
  std::vector<BesideModel> models;
  std::vector<InferencePass> passes;  // in their order
};

// Where a model beside the trained one is held when nobody says it: as TRL prepares it for the
// trained model's engine.
Placement usual_placement(const Plan& policy);

}  // namespace zeroplan
