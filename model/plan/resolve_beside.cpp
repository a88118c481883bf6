// `models` of a scenario and what a trainer brings: the models beside the trained one, their
// engines and the forward passes without gradients.
//
// Sources: TRL 1.16.0 trainer/dpo_trainer.py and kto_trainer.py (_compute_loss), models/utils.py
// (prepare_deepspeed, prepare_fsdp).
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/described.hpp"
#include "model/families/hf_config.hpp"
#include "model/known_names.hpp"
#include "model/plan/beside.hpp"
#include "model/plan/resolver.hpp"
#include "model/plan/trainer.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

// One object of `models`.
struct SaidModel {
  Origin origin;
  ModelRole role = ModelRole::reference;
  const Json* model = nullptr;
  std::string model_pointer;
  std::optional<Placement> placement;
  std::optional<Precision> dtype;
  const Json* ds_config = nullptr;
};

template <typename Enum, std::size_t N>
std::optional<Enum> read_name(Resolver& r,
                              const Origin& origin,
                              const Json& value,
                              const EnumNames<Enum, N>& names,
                              std::string_view expected) {
  const auto found =
      value.is_string() ? find(names, std::string_view(value.as_string())) : std::optional<Enum>();
  if (!found) r.problem(origin, phrase("one of {}", expected), described(value));
  return found;
}

SaidModel read_object(Resolver& r, const Origin& origin, const Json& object) {
  SaidModel said{origin};
  constexpr std::string_view kKeys[] = {"role", "model", "placement", "dtype", "ds_config"};
  for (const auto& [key, value] : object.members()) {
    const Origin at{origin.file, origin.pointer + "/" + std::string(pointer_token(key))};
    if (key == "role") {
      const auto role =
          read_name(r, at, value, kModelRoleNames, "reference, reward, critic, teacher");
      said.role = role.value_or(ModelRole::reference);
    } else if (key == "model") {
      said.model = &value;
      said.model_pointer = at.pointer;
    } else if (key == "placement") {
      said.placement = read_name(r, at, value, kPlacementNames, "replicated, sharded, cpu");
    } else if (key == "dtype") {
      said.dtype = read_name(r, at, value, kPrecisionNames, "bf16, fp16, fp32");
    } else if (key == "ds_config") {
      said.ds_config = &value;
    } else if (r.problems.size() < kMostProblems) {
      r.problem(
          at, "a key of a model beside the trained one", in_quotes(key), did_you_mean(key, kKeys));
    }
  }
  if (object.find("role") == nullptr) {
    r.problem(origin, "a role: reference, reward, critic, teacher", "none");
  }
  return said;
}

std::vector<SaidModel> read_models(Resolver& r) {
  std::vector<SaidModel> models;
  const ExplicitValue* said = r.scenario.find(ScenarioKey::models);
  if (said == nullptr) return models;
  for (std::size_t i = 0; i < said->value.items().size(); ++i) {
    const Origin origin{said->origin.file, said->origin.pointer + "/" + std::to_string(i)};
    models.push_back(read_object(r, origin, said->value.items()[i]));
  }
  return models;
}

bool needs_reference(const TrainerSettings& trainer) {
  if (trainer.distils() || !trainer.has_others()) return false;
  if (trainer.kind == TrainerKind::dpo || trainer.kind == TrainerKind::kto) {
    return !trainer.precompute_reference;
  }
  return trainer.trains_values() || trainer.beta > 0.0;
}

bool has_role(const std::vector<SaidModel>& models, ModelRole role) {
  return std::any_of(
      models.begin(), models.end(), [=](const SaidModel& model) { return model.role == role; });
}

// The teacher of a trainer that distils: by its own key, or one of `models`.
void add_teacher(Resolver& r, std::vector<SaidModel>& models) {
  const ExplicitValue* said = r.scenario.find(ScenarioKey::teacher);
  if (said != nullptr && !distils(r.plan)) {
    r.problem(said->origin,
              "--trainer gkd, whose student a teacher has",
              r.plan.trainer == nullptr
                  ? "sft"
                  : std::string(name(kTrainerKindNames, r.plan.trainer->kind)));
    return;
  }
  if (!distils(r.plan)) return;
  for (std::size_t i = 0; i < models.size(); ++i) {
    if (models[i].role != ModelRole::teacher) {
      r.problem(models[i].origin,
                "a teacher alone beside gkd's student",
                std::string(name(kModelRoleNames, models[i].role)));
    } else if (said != nullptr || i > 0) {
      r.problem(models[i].origin, "one teacher", "two");
    }
  }
  if (said == nullptr && models.empty()) {
    r.problem(r.origin(ScenarioKey::teacher),
              "the teacher of gkd: --teacher MODEL",
              "none",
              "a larger model of the student's family, with its vocabulary");
  }
  if (said == nullptr) return;
  SaidModel teacher{said->origin};
  teacher.role = ModelRole::teacher;
  teacher.model = &said->value;
  teacher.model_pointer = said->origin.pointer;
  models.push_back(teacher);
}

// PPO's reward model and critic, where nobody says them: of the trained model's size.
void add_scoring_models(Resolver& r, std::vector<SaidModel>& models) {
  const Plan& plan = r.plan;
  if (plan.trainer == nullptr || !plan.trainer->trains_values()) return;
  for (const ModelRole role : {ModelRole::reward, ModelRole::critic}) {
    if (has_role(models, role)) continue;
    SaidModel model;
    model.role = role;
    models.insert(models.begin(), model);
  }
  for (SaidModel& model : models) {
    if (model.role != ModelRole::critic) continue;
    if (model.placement && *model.placement != Placement::policy_engine) {
      r.warn(
          phrase("placement {} of the critic has no effect: ppo trains it, in the policy's engine",
                 name(kPlacementNames, *model.placement)));
    }
    model.placement = Placement::policy_engine;
  }
}

// What its trainer makes where nobody says a reference.
void add_reference(const Plan& plan, std::vector<SaidModel>& models) {
  if (plan.trainer == nullptr || !needs_reference(*plan.trainer)) return;
  if (has_role(models, ModelRole::reference)) return;
  SaidModel reference;
  // OpenRLHF loads one whatever is trained (cli/train_dpo.py, trainer/ray/launcher.py).
  const bool shares = plan.workload.method != Method::full && !plan.trainer->by_hand();
  if (shares) reference.placement = Placement::policy_weights;
  models.insert(models.begin(), reference);
}

std::shared_ptr<const Model> frozen(Resolver& r, const std::shared_ptr<const Model>& model) {
  return r.make(model, "frozen", [&] { return without_training(*model); });
}

// The trained model's plan as that of passes without gradients.
Plan without_gradients(Resolver& r) {
  const Plan& policy = r.plan;
  Plan plan = policy;
  plan.inference = true;
  plan.beside = nullptr;
  plan.model = frozen(r, policy.model);
  plan.workload.activation_checkpointing = ActivationCheckpointing::none;
  plan.workload.activation_offload = ActivationOffload::none;
  plan.workload.outputs_held = plan.workload.outputs_kept = false;
  plan.workload.use_cache = false;
  if (plan.trainer != nullptr && plan.trainer->trains_values()) {
    plan.workload.micro_batch_size = rollout_rows(policy);
    // They run outside of the wrapper's forward, which accelerate puts under autocast.
    if (plan.workload.engine == TrainingEngine::ddp) {
      plan.ddp.compute_dtype = plan.engine.model_dtype = plan.ddp.weight_dtype;
      plan.workload.lora.autocast = false;
    }
  }
  return plan;
}

// Whether an engine of DeepSpeed, FSDP or none can hold weights like this.
void check_placement(Resolver& r, const SaidModel& said, Placement placement) {
  const Origin at{said.origin.file, said.origin.pointer + "/placement"};
  const TrainingEngine engine = r.plan.workload.engine;
  const bool deepspeed = runs_deepspeed(r.plan.workload);
  if (placement == Placement::cpu && !deepspeed) {
    r.problem(at, "replicated or sharded: weights in host memory are DeepSpeed's", "cpu");
  }
  if (placement == Placement::sharded && engine == TrainingEngine::ddp) {
    r.problem(at, "replicated: DDP shards nothing", "sharded");
  }
  if (placement == Placement::policy_engine && !trains_values(r.plan)) {
    r.problem(at, "replicated, sharded or cpu: only ppo trains a second model", "policy_engine");
  }
  if (placement == Placement::policy_weights && r.plan.workload.method == Method::full) {
    r.problem(
        at, "replicated, sharded or cpu: there are no adapters to switch off", "policy_weights");
  }
}

// A teacher as from_pretrained loads it, in its checkpoint's format since transformers 5 (that of
// the run, where its config names none), with the cache that its config asks for. accelerate puts
// it under autocast (prepare_model).
void set_teacher(const SaidModel& said, Plan& plan) {
  plan.workload.use_cache = true;
  if (plan.workload.engine != TrainingEngine::ddp) return;
  if (!said.dtype) {
    const bool keeps = plan.software.transformers_act(ReleaseRule::loads_as_stored);
    const DType computed = dtype_of(plan.workload.precision);
    plan.ddp.weight_dtype = keeps ? checkpoint_dtype(*plan.whole_model, computed) : DType::fp32;
  }
  plan.workload.lora.autocast = dtype_of(plan.workload.precision) != DType::fp32;
}

void set_dtype(Resolver& r, const SaidModel& said, Plan& plan) {
  if (!said.dtype) return;
  const DType dtype = dtype_of(*said.dtype);
  if (runs_deepspeed(plan.workload) && dtype != plan.engine.model_dtype) {
    r.problem({said.origin.file, said.origin.pointer + "/dtype"},
              "the trained model's format: DeepSpeed casts every model to that of its ds_config",
              std::string(name(kPrecisionNames, *said.dtype)));
  }
  plan.ddp.weight_dtype = dtype;
  plan.fsdp.storage_dtype = dtype;
}

// prepare_deepspeed: the trained model's file without optimizer and scheduler, at stage 3 or 0; or
// a file of its own.
void set_deepspeed(Resolver& r, const SaidModel& said, Placement placement, Plan& plan) {
  std::string file = r.ds_config_file;
  if (said.ds_config != nullptr) {
    file = said.origin.file + ":" + said.origin.pointer + "/ds_config";
    plan.ds_config = read_ds_config_of(
        {*said.ds_config, {said.origin.file, said.origin.pointer + "/ds_config"}});
    plan.ds_config.set(Knob::train_micro_batch_size_per_gpu, plan.workload.micro_batch_size);
  }
  const bool stage3 = placement != Placement::replicated;
  if (stage3) check_secondary_partitions(r, file, plan.ds_config);
  plan.ds_config.set(Knob::zero_stage, std::int64_t{stage3 ? 3 : 0});
  plan.workload.gradient_accumulation_steps = 1;
  plan.engine = engine_config(plan);
  plan.engine.offload_optimizer = {};
  plan.engine.gradient_accumulation_steps = 1;
  if (placement == Placement::cpu) {
    plan.engine.offload_parameter.device = OffloadDevice::cpu;
  } else if (said.placement == Placement::sharded) {
    plan.engine.offload_parameter.device = OffloadDevice::none;
  }
}

// An engine of its own around `model`.
std::shared_ptr<const Plan> own_engine(Resolver& r,
                                       const SaidModel& said,
                                       const std::shared_ptr<const Model>& model,
                                       Placement placement) {
  Plan plan = without_gradients(r);
  plan.model = plan.whole_model = plan.tensor_model = frozen(r, model);
  plan.workload.method = Method::full;
  plan.workload.lora = {};
  if (runs_deepspeed(plan.workload)) set_deepspeed(r, said, placement, plan);
  plan.ddp.ranks = 1;
  plan.ddp.gradient_accumulation_steps = plan.fsdp.gradient_accumulation_steps = 1;
  set_dtype(r, said, plan);
  if (said.role == ModelRole::teacher && distils(r.plan)) {
    set_teacher(said, plan);
  }
  plan.engine_parameters = engine_parameters(plan);
  plan.wrapped_block = wrapped_blocks(*plan.model);
  return std::make_shared<const Plan>(std::move(plan));
}

std::shared_ptr<const Model> model_of(Resolver& r,
                                      const SaidModel& said,
                                      const std::shared_ptr<const Model>& base) {
  if (said.model == nullptr) return base;
  return r.read(*said.model, said.origin.file, said.model_pointer);
}

// TRL stops where the two configs differ.
void check_vocabulary(Resolver& r, const SaidModel& said, const BesideModel& beside) {
  const Model& teacher = *beside.plan->model;
  const std::int64_t wanted = r.plan.model->shape.vocabulary, found = teacher.shape.vocabulary;
  if (wanted == found && teacher.shape.has_logits) return;
  r.problem({said.origin.file, said.model_pointer},
            phrase("a teacher with the student's vocabulary of {} words", wanted),
            teacher.shape.has_logits ? Phrase(std::to_string(found)) : Phrase(teacher.architecture),
            "gkd compares distributions of the next token; another size of the same series often "
            "has the same vocabulary");
}

// Below stage 3 OpenRLHF's file for such a model says stage 0, where DeepSpeed ignores
// offload_param (utils/deepspeed/deepspeed.py get_ds_eval_config).
Placement without_ignored_offload(Resolver& r, ModelRole role, Placement placement) {
  const TrainerSettings* trainer = r.plan.trainer.get();
  const bool openrlhf = trainer != nullptr && trainer->code == TrainerCode::openrlhf;
  if (!openrlhf || placement != Placement::cpu || r.plan.engine.stage == 3) return placement;
  r.assume(phrase("{}: offload has no effect below stage 3, where DeepSpeed ignores it",
                  name(kModelRoleNames, role)));
  return Placement::replicated;
}

BesideModel make_beside(Resolver& r,
                        const SaidModel& said,
                        const std::shared_ptr<const Model>& base) {
  BesideModel beside;
  beside.role = said.role;
  beside.placement = said.placement.value_or(usual_placement(r.plan));
  beside.placement = without_ignored_offload(r, beside.role, beside.placement);
  if (said.placement) check_placement(r, said, beside.placement);
  if (said.model != nullptr && said.model->is_string()) beside.name = said.model->as_string();
  if (!has_own_weights(beside.placement)) {
    Plan plan = without_gradients(r);
    const bool values = beside.placement == Placement::policy_engine;
    plan.adapters_off = !values;
    if (plan.model->policy != nullptr) plan.part = values ? ModelPart::value : ModelPart::policy;
    beside.plan = std::make_shared<const Plan>(std::move(plan));
  } else {
    const bool scores = said.role == ModelRole::reward && trains_values(r.plan);
    beside.plan = own_engine(r,
                             said,
                             scores ? scoring_model(r, ModelRole::reward) : model_of(r, said, base),
                             beside.placement);
    if (distils(r.plan)) check_vocabulary(r, said, beside);
  }
  return beside;
}

// What a trainer's loss runs without gradients, in its order.
std::vector<InferencePass> passes_of(Resolver& r, const std::vector<BesideModel>& models) {
  std::vector<InferencePass> passes;
  const TrainerSettings* trainer = r.plan.trainer.get();
  const bool mismatched =
      trainer != nullptr && trainer->kind == TrainerKind::kto && trainer->compares_mismatched;
  if (mismatched) {
    // LLaMA-Factory scores them behind the trained model's own pass.
    const PassMoment moment =
        trainer->code == TrainerCode::trl ? PassMoment::before_forward : PassMoment::after_forward;
    passes.push_back({moment, std::make_shared<const Plan>(without_gradients(r)), -1});
  }
  const bool in_step = trainer == nullptr || !trainer->generates();
  const bool rolls_out = trainer != nullptr && trainer->trains_values();
  const bool distils = trainer != nullptr && trainer->distils();
  for (std::size_t i = 0; i < models.size(); ++i) {
    const bool own = has_own_weights(models[i].placement);
    // What is generated is scored by the others as many rows at a time as a micro-batch has.
    const InferencePass pass{distils     ? PassMoment::in_loss
                             : rolls_out ? PassMoment::rollout
                             : in_step   ? PassMoment::after_forward
                                         : PassMoment::before_forward,
                             models[i].plan,
                             own ? static_cast<int>(i) : -1};
    if (mismatched && models[i].role == ModelRole::reference) passes.push_back(pass);
    passes.push_back(pass);
  }
  return passes;
}

void say(Resolver& r, const BesideModel& beside) {
  const std::string role(name(kModelRoleNames, beside.role));
  Phrase text = phrase("{}: ", role);
  if (beside.placement == Placement::policy_weights) {
    r.assume(text + "the trained model with its adapters switched off");
    return;
  }
  const bool with_policy = beside.placement == Placement::policy_engine;
  if (!beside.name.empty()) {
    text += beside.name;
  } else {
    text += with_policy ? "a model of the policy's size" : "a frozen copy of the model";
  }
  if (with_policy) {
    text += ", trained by the policy's engine";
  } else {
    text.append(phrase(", {}", name(kPlacementNames, beside.placement)));
  }
  r.assume(text);
}

}  // namespace

Placement usual_placement(const Plan& policy) {
  if (runs_deepspeed(policy.workload)) {
    if (policy.engine.stage < 3) return Placement::replicated;
    const bool offloads = policy.engine.offload_parameter.device != OffloadDevice::none;
    return offloads ? Placement::cpu : Placement::sharded;
  }
  return policy.workload.engine == TrainingEngine::fsdp ? Placement::sharded
                                                        : Placement::replicated;
}

void resolve_beside(Resolver& r, const std::shared_ptr<const Model>& base) {
  std::vector<SaidModel> said = read_models(r);
  add_teacher(r, said);
  add_scoring_models(r, said);
  add_reference(r.plan, said);
  if (!r.problems.empty()) return;
  if (said.empty() && (r.plan.trainer == nullptr || !r.plan.trainer->has_others())) return;
  const Degrees& degrees = r.plan.degrees;
  if (degrees.tensor > 1 || degrees.pipeline > 1 || degrees.sequence > 1) {
    r.not_modelled(said.empty() ? ScenarioKey::trainer : ScenarioKey::models,
                   "several models with tensor, pipeline or sequence parallelism");
    return;
  }
  if (r.plan.workload.engine == TrainingEngine::embedded) {
    r.not_modelled(ScenarioKey::models, "a second model in the embedded runtime");
    return;
  }
  BesideModels beside;
  for (const SaidModel& model : said) {
    beside.models.push_back(make_beside(r, model, base));
    say(r, beside.models.back());
  }
  if (!r.problems.empty()) return;
  beside.passes = passes_of(r, beside.models);
  r.plan.beside = std::make_shared<const BesideModels>(std::move(beside));
}

}  // namespace zeroplan
