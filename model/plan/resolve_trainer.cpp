// `trainer` and `evaluation` of a scenario: which of TRL's trainers runs, and its settings that
// count for memory and time.
#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/described.hpp"
#include "model/known_names.hpp"
#include "model/plan/resolver.hpp"
#include "model/plan/software_sets.hpp"
#include "model/plan/trainer.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kMostTrainerTokens = 1LL << 24;
constexpr std::int64_t kMostCount = 1LL << 30;

// One of the objects, by its keys.
class SettingsReader {
 public:
  SettingsReader(Resolver& resolver, const Json& object, Origin origin)
      : r_(resolver), object_(object), origin_(std::move(origin)) {}

  void refuse_others(std::span<const std::string_view> known) {
    for (const auto& [key, value] : object_.members()) {
      if (r_.problems.size() >= kMostProblems) return;
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      r_.problem(at(key), "a key of these settings", in_quotes(key), did_you_mean(key, known));
    }
  }
  void refuse(std::string_view key, const Phrase& expected) {
    r_.problem(at(key), expected, described(*object_.find(key)));
  }
  void read(std::string_view key, bool& value) {
    const Json* said = object_.find(key);
    if (said == nullptr) return;
    if (said->is_boolean()) {
      value = said->as_boolean();
    } else {
      r_.problem(at(key), "true or false", described(*said));
    }
  }
  void read(std::string_view key, std::int64_t& value, std::int64_t least, std::int64_t most) {
    const Json* said = object_.find(key);
    if (said == nullptr) return;
    if (said->is_integer() && said->as_integer() >= least && said->as_integer() <= most) {
      value = said->as_integer();
      return;
    }
    r_.problem(at(key), phrase("a whole number from {} to {}", least, most), described(*said));
  }
  void read(std::string_view key, double& value, double least, double most) {
    const Json* said = object_.find(key);
    if (said == nullptr) return;
    if (said->is_number() && said->as_number() >= least && said->as_number() <= most) {
      value = said->as_number();
      return;
    }
    r_.problem(at(key),
               phrase("a number from {} to {}", Json(least).dump(), Json(most).dump()),
               described(*said));
  }
  template <typename Enum, std::size_t N>
  void read(std::string_view key, Enum& value, const EnumNames<Enum, N>& names) {
    const Json* said = object_.find(key);
    if (said == nullptr) return;
    const auto found = said->is_string() ? find(names, std::string_view(said->as_string()))
                                         : std::optional<Enum>();
    if (found) {
      value = *found;
      return;
    }
    Phrase expected;
    for (const std::string_view name : names.names) {
      expected += (expected.empty() ? "" : ", ") + std::string(name);
    }
    r_.problem(at(key), phrase("one of {}", expected), described(*said));
  }

 private:
  Origin at(std::string_view key) const {
    return {origin_.file, origin_.pointer + "/" + std::string(pointer_token(key))};
  }

  Resolver& r_;
  const Json& object_;
  Origin origin_;
};

// A name, or an object of one member: the name and what is said of it.
struct NamedSettings {
  std::string name;
  const Json* settings = nullptr;
};
NamedSettings named_settings(const Json& value) {
  if (value.is_string()) return {value.as_string(), nullptr};
  if (value.members().size() != 1 || !value.members()[0].second.is_object()) return {};
  return {value.members()[0].first, &value.members()[0].second};
}

// Reads OpenRLHF's fine-tuning, whose own loss reads log-probabilities of all tokens.
void read_fine_tuning(SettingsReader& reader, TrainerSettings& trainer) {
  constexpr std::string_view kKeys[] = {"code"};
  reader.refuse_others(kKeys);
  reader.read("code", trainer.code, kTrainerCodeNames);
}

void read_preferences(SettingsReader& reader, TrainerSettings& trainer) {
  constexpr std::string_view kDpo[] = {"precompute_reference", "prompt_length", "beta", "code"};
  constexpr std::string_view kKto[] = {
      "precompute_reference", "prompt_length", "beta", "code", "compares_mismatched"};
  const bool kto = trainer.kind == TrainerKind::kto;
  reader.refuse_others(kto ? std::span<const std::string_view>(kKto)
                           : std::span<const std::string_view>(kDpo));
  reader.read("precompute_reference", trainer.precompute_reference);
  reader.read("compares_mismatched", trainer.compares_mismatched);
  reader.read("code", trainer.code, kTrainerCodeNames);
}

void read_generation(SettingsReader& reader, TrainerSettings& trainer) {
  constexpr std::string_view kKeys[] = {"prompt_length",
                                        "beta",
                                        "completion_length",
                                        "completions",
                                        "generation_batches",
                                        "generation",
                                        "gathers_model",
                                        "memory_share",
                                        "sleeps",
                                        "generation_tensor_parallel",
                                        "code"};
  reader.refuse_others(kKeys);
  reader.read("code", trainer.code, kTrainerCodeNames);
  GenerationSettings& generation = trainer.generation;
  reader.read("completion_length", generation.completion_length, 1, kMostTrainerTokens);
  reader.read("completions", generation.completions, 1, kMostCount);
  reader.read("generation_batches", generation.batches, 1, kMostCount);
  reader.read("generation", generation.by, kGenerationByNames);
  reader.read("gathers_model", generation.gathers_model);
  reader.read("memory_share", generation.memory_share, 0.01, 0.99);
  reader.read("sleeps", generation.sleeps);
  reader.read("generation_tensor_parallel", generation.tensor_parallel, 1, 1024);
}

void read_rollout(SettingsReader& reader, TrainerSettings& trainer) {
  constexpr std::string_view kKeys[] = {"prompt_length",
                                        "beta",
                                        "completion_length",
                                        "rollout_rows",
                                        "epochs",
                                        "mini_batches",
                                        "gathers_model"};
  reader.refuse_others(kKeys);
  reader.read("completion_length", trainer.generation.completion_length, 1, kMostTrainerTokens);
  reader.read("rollout_rows", trainer.rollout.rows, 1, kMostCount);
  reader.read("epochs", trainer.rollout.epochs, 1, kMostCount);
  reader.read("mini_batches", trainer.rollout.mini_batches, 1, kMostCount);
  reader.read("gathers_model", trainer.generation.gathers_model);
}

void read_distillation(SettingsReader& reader, TrainerSettings& trainer) {
  constexpr std::string_view kKeys[] = {
      "prompt_length", "beta", "lmbda", "completion_length", "seq_kd"};
  reader.refuse_others(kKeys);
  bool teacher_generates = false;
  reader.read("seq_kd", teacher_generates);
  if (teacher_generates) {
    reader.refuse("seq_kd", "false: completions that the teacher generates are not modelled");
  }
  reader.read("beta", trainer.beta, 0.0, 1.0);
  reader.read("lmbda", trainer.lmbda, 0.0, 1.0);
  reader.read("completion_length", trainer.generation.completion_length, 1, kMostTrainerTokens);
}

// TRL's own defaults of today (trainer/grpo_config.py of 1.16.0: beta 0; ppo_config.py: kl_coef
// 0.05; experimental/gkd/gkd_config.py).
TrainerSettings settings_of(TrainerKind kind) {
  TrainerSettings trainer;
  trainer.kind = kind;
  if (kind == TrainerKind::grpo) trainer.beta = 0.0;
  if (kind == TrainerKind::ppo) trainer.beta = 0.05;
  if (kind == TrainerKind::ppo) {
    trainer.generation.completions = 1;
    trainer.generation.completion_length = 53;
  }
  if (kind == TrainerKind::gkd) {
    trainer.beta = trainer.lmbda = 0.5;
    trainer.generation.completions = 1;
    trainer.generation.completion_length = 128;
  }
  return trainer;
}

// `key`: what the release follows from.
void refuse_old_distillation(Resolver& r, ScenarioKey key, const TrainerSettings& trainer) {
  const Software& software = r.plan.software;
  if (!trainer.distils() || software.trl_acts(ReleaseRule::trl_compares_all_logits)) return;
  r.problem(
      r.origin(key),
      "TRL 1.14 or later: what its GKDTrainer did before is not described",
      phrase(
          "TRL {} with transformers {}", to_string(software.trl), to_string(software.transformers)),
      "trl 1.14 needs transformers 4.56.2 or later: --trl 1.16 --transformers 5.17");
}

// LLaMA-Factory's loss is its own, whatever TRL is there.
void take_trl(Resolver& r, const TrainerSettings& trainer) {
  Software& software = r.plan.software;
  const TrainerCode code = trainer.code;
  const auto said = r.text(ScenarioKey::trl_version);
  constexpr Version kLastWithPpo{1, 12, 0};
  Version usual = usual_trl(software.transformers);
  if (trainer.trains_values()) usual = std::min(usual, kLastWithPpo);
  software.trl = usual;
  if (!said) {
    if (code == TrainerCode::trl) r.assume(phrase("software: TRL {}", to_string(usual)));
    refuse_old_distillation(r, ScenarioKey::trainer, trainer);
    return;
  }
  const auto parsed = parse_version(*said);
  if (!parsed) {
    r.problem(r.origin(ScenarioKey::trl_version),
              phrase("a version such as {}", to_string(usual)),
              in_quotes(*said));
  }
  software.trl = parsed.value_or(usual);
  if (trainer.trains_values() && !software.trl_acts(ReleaseRule::trl_has_ppo)) {
    r.problem(r.origin(ScenarioKey::trl_version),
              "TRL 0.12 to 1.12: this PPOTrainer came with 0.12 and went with 1.13",
              to_string(software.trl));
  }
  refuse_old_distillation(r, ScenarioKey::trl_version, trainer);
}

// GRPO's defaults and batch changed with TRL's releases: those of the plan's release hold.
void take_grpo_of_release(Resolver& r, bool beta_was_said, TrainerSettings& trainer) {
  const Software& software = r.plan.software;
  if (!beta_was_said && software.trl_acts(ReleaseRule::trl_penalises_grpo)) {
    trainer.beta = 0.04;
    r.assume(phrase("beta 0.04, beside a reference model: the default of TRL {}",
                    to_string(software.trl)));
  }
  if (software.trl_acts(ReleaseRule::trl_counts_prompts)) {
    r.warn(
        phrase("TRL {} takes per_device_train_batch_size for prompts: the micro-batch here is of "
               "completions, num_generations times as many",
               to_string(software.trl)));
  }
}

// What no rehearsal and no GPU has shown yet (docs/model.md, [B4]).
void say_unmeasured(Resolver& r, GenerationBy by) {
  r.assume("generation: its seconds are not part of the step");
  if (by == GenerationBy::colocated) {
    r.assume(
        "vLLM takes the share of the GPU that it is told (vllm_gpu_memory_utilization): by its "
        "rule, not measured; what it keeps while it sleeps, its context and CUDA graphs are left "
        "out");
  }
  if (by == GenerationBy::server) {
    r.assume("vLLM's server runs on other GPUs, which are not counted");
  }
}

// TRL loads AutoModelForCausalLM, or AutoModelForSeq2SeqLM.
bool generates_text(const Model& model) {
  const std::string_view architecture = model.architecture;
  constexpr std::array<std::string_view, 6> kOthers = {"ForMaskedLM",
                                                       "ForPreTraining",
                                                       "ForNextSentencePrediction",
                                                       "ForSequenceClassification",
                                                       "ForTokenClassification",
                                                       "ForQuestionAnswering"};
  return std::none_of(kOthers.begin(), kOthers.end(), [&](std::string_view head) {
    return architecture.ends_with(head);
  });
}

// TRL's other trainers with a teacher, and who has them.
Phrase hint_of_distillation(std::string_view trainer) {
  constexpr std::array<std::string_view, 6> kOthers = {
      "minillm", "distillation", "gold", "sdft", "sdpo", "server_distillation"};
  if (std::find(kOthers.begin(), kOthers.end(), trainer) == kOthers.end()) return "";
  return phrase("of the trainers with a teacher gkd is modelled, with --teacher MODEL; {} is not",
                in_quotes(std::string(trainer)));
}

// OpenRLHF's loops call DeepSpeed's engine, whose outputs a variable keeps: of fine-tuning until
// the next ones take their place, of rewards until the step's function returns. The pass of
// preferences is a function of its own, which returns numbers, as is that of verl's FSDP actor
// (trainer/sft_trainer.py fit, dpo_trainer.py concatenated_forward, ray/ppo_actor.py training_step
// of OpenRLHF 0.11.0; workers/actor/dp_actor.py _forward_micro_batch of verl).
void take_loop(Resolver& r, const TrainerSettings& trainer) {
  Workload& workload = r.plan.workload;
  const bool verl = trainer.code == TrainerCode::verl;
  const std::string code(name(kTrainerCodeNames, trainer.code));
  const TrainingEngine its = verl ? TrainingEngine::fsdp : TrainingEngine::deepspeed;
  if (workload.engine != its) {
    r.problem(r.origin(ScenarioKey::engine),
              phrase("{}: the engine of {}", name(kTrainingEngineNames, its), code),
              std::string(name(kTrainingEngineNames, workload.engine)));
  }
  if (workload.implementation != Implementation::hf) {
    r.not_modelled(ScenarioKey::trainer, phrase("{} beside other code than transformers'", code));
  }
  if (trainer.kind == TrainerKind::sft) return;
  workload.outputs_held = workload.outputs_held && trainer.generates() && !verl;
  workload.outputs_kept = false;
}

bool has_trainer(TrainerCode code, TrainerKind kind) {
  switch (code) {
    case TrainerCode::trl:
      return true;
    case TrainerCode::llama_factory:
      return kind == TrainerKind::dpo || kind == TrainerKind::kto;
    case TrainerCode::openrlhf:
      return kind == TrainerKind::sft || kind == TrainerKind::dpo || kind == TrainerKind::grpo;
    case TrainerCode::verl:
      return kind == TrainerKind::grpo;
  }
  return false;
}

// Who has a loop for it, and which front end that is.
void check_code(Resolver& r, const TrainerSettings& trainer) {
  const Frontend frontend = r.plan.workload.frontend;
  const std::string kind(name(kTrainerKindNames, trainer.kind));
  const std::string code(name(kTrainerCodeNames, trainer.code));
  if (!has_trainer(trainer.code, trainer.kind)) {
    r.problem(r.origin(ScenarioKey::trainer),
              "trl; llama-factory of dpo and kto; openrlhf of sft, dpo and grpo; verl of grpo",
              kind + ", " + code);
  } else if (trainer.by_hand()) {
    take_loop(r, trainer);
  }
  const Frontend its = trainer.by_hand() ? Frontend::native : Frontend::hf_trainer;
  if (frontend == its) return;
  r.problem(r.origin(ScenarioKey::frontend),
            trainer.by_hand() ? phrase("native: {} has a loop of its own", code)
                              : phrase("hf-trainer: {} is a trainer of TRL", kind),
            std::string(name(kFrontendNames, frontend)));
}

void check_trainer(Resolver& r, TrainerKind kind) {
  const Workload& workload = r.plan.workload;
  const std::string trainer(name(kTrainerKindNames, kind));
  if (!generates_text(*r.plan.model)) {
    r.problem(r.origin(ScenarioKey::model),
              phrase("a model that generates text: {} is a trainer of TRL", trainer),
              r.plan.model->architecture);
  }
  if (kind == TrainerKind::ppo && workload.engine == TrainingEngine::fsdp) {
    r.not_modelled(ScenarioKey::trainer, "ppo under FSDP");
  }
  if (kind == TrainerKind::gkd && r.plan.model->shape.kind != ModelKind::decoder) {
    r.problem(r.origin(ScenarioKey::model),
              "a decoder: gkd compares its logits with a teacher's, prompt and answer in one row",
              r.plan.model->architecture);
  }
  if (kind == TrainerKind::gkd && workload.engine == TrainingEngine::fsdp) {
    r.problem(r.origin(ScenarioKey::engine),
              "deepspeed or ddp: under FSDP accelerate leaves gkd's teacher in host memory, where "
              "its first pass stops",
              "fsdp");
  }
  if (kind == TrainerKind::gkd && workload.implementation != Implementation::hf) {
    r.not_modelled(ScenarioKey::trainer, "gkd beside other code than transformers'");
  }
  if (workload.engine == TrainingEngine::embedded) {
    r.not_modelled(ScenarioKey::trainer, phrase("{} in the embedded runtime", trainer));
  }
}

}  // namespace

std::int64_t samples_of_rollout(const Plan& plan) {
  return detail::checked_product(plan.workload.micro_batch_size,
                                 plan.workload.gradient_accumulation_steps);
}

std::int64_t rollout_rows(const Plan& plan) {
  return std::min(plan.trainer->rollout.rows, samples_of_rollout(plan));
}

std::int64_t generated_batches(const Plan& plan) {
  const std::int64_t said = plan.trainer->generation.batches;
  return said > 0 ? said : plan.workload.gradient_accumulation_steps;
}

std::int64_t generated_sequences(const Plan& plan) {
  return detail::checked_product(
      detail::checked_product(plan.workload.micro_batch_size, plan.degrees.data),
      generated_batches(plan));
}

bool generates_whole_groups(const Plan& plan) {
  return plan.software.trl_acts(ReleaseRule::trl_counts_prompts) ||
         generated_sequences(plan) % plan.trainer->generation.completions == 0;
}

bool forces_reentrance(const Plan& plan) {
  return plan.trainer != nullptr && plan.trainer->code == TrainerCode::trl &&
         plan.workload.method != Method::full && runs_zero3(plan) &&
         plan.workload.activation_checkpointing != ActivationCheckpointing::none &&
         plan.software.trl_acts(ReleaseRule::trl_forces_reentrance);
}

void judge_generation(Resolver& r) {
  const TrainerSettings* trainer = r.plan.trainer.get();
  if (trainer == nullptr || trainer->kind != TrainerKind::grpo || !trainer->by_trl()) return;
  const std::int64_t group = trainer->generation.completions;
  if (group < 2 || generates_whole_groups(r.plan)) return;
  r.warn(
      phrase("TRL stops at the start: num_generations {} does not divide the {} sequences of a "
             "generation",
             group,
             generated_sequences(r.plan)));
}

void resolve_forced_reentrance(Resolver& r) {
  bool& reentrant = r.plan.workload.checkpoint_reentrant;
  if (reentrant || !forces_reentrance(r.plan)) return;
  reentrant = true;
  const Phrase forced = phrase("TRL {} checkpoints reentrantly with adapters at ZeRO stage 3",
                               to_string(r.plan.software.trl));
  if (r.scenario.find(ScenarioKey::checkpoint_reentrant) != nullptr) {
    r.warn(phrase("{}, whatever use_reentrant says", forced));
  } else {
    r.assume(forced);
  }
}

void resolve_trainer(Resolver& r) {
  const ExplicitValue* said = r.scenario.find(ScenarioKey::trainer);
  if (said == nullptr) return;
  const NamedSettings named = named_settings(said->value);
  const auto kind = find(kTrainerKindNames, std::string_view(named.name));
  if (!kind) {
    r.problem(said->origin,
              "sft, dpo, kto, grpo, ppo, gkd, or {\"dpo\": {...}}",
              described(said->value),
              hint_of_distillation(named.name));
    return;
  }
  const bool own_loss = *kind == TrainerKind::sft;  // the Trainer's step, or SFTTrainer's
  if (own_loss && named.settings == nullptr) return;
  check_trainer(r, *kind);
  TrainerSettings trainer = settings_of(*kind);
  if (named.settings != nullptr) {
    SettingsReader reader(
        r, *named.settings, {said->origin.file, said->origin.pointer + "/" + named.name});
    if (!trainer.distils()) reader.read("beta", trainer.beta, 0.0, 1e6);
    reader.read("prompt_length", trainer.prompt_length, 0, kMostTrainerTokens);
    if (own_loss) {
      read_fine_tuning(reader, trainer);
    } else if (trainer.distils()) {
      read_distillation(reader, trainer);
    } else if (trainer.trains_values()) {
      read_rollout(reader, trainer);
    } else if (trainer.generates()) {
      read_generation(reader, trainer);
    } else {
      read_preferences(reader, trainer);
    }
  }
  if (own_loss && trainer.by_trl()) return;
  check_code(r, trainer);
  take_trl(r, trainer);
  if (*kind == TrainerKind::grpo && trainer.by_trl()) {
    const bool said_beta = named.settings != nullptr && named.settings->find("beta") != nullptr;
    take_grpo_of_release(r, said_beta, trainer);
  }
  if (trainer.generates()) say_unmeasured(r, trainer.generation.by);
  if (trainer.distils() && trainer.generates() && trainer.lmbda < 1.0) {
    r.assume(
        phrase("lmbda {}: memory is that of micro-batches whose completions the student "
               "generates, {} tokens each",
               Json(trainer.lmbda).dump(),
               trainer.generation.completion_length));
  }
  if (trainer.trains_values()) {
    // `output` is a variable of the training loop.
    r.plan.workload.outputs_held = true;
    r.plan.workload.outputs_kept = false;
    r.assume(
        phrase("ppo: a step is an optimizer step; a rollout stands before every {}, and its "
               "seconds are not part of the step",
               trainer.rollout.epochs));
  }
  r.plan.trainer = std::make_shared<const TrainerSettings>(trainer);
}

bool distils(const Plan& plan) { return plan.trainer != nullptr && plan.trainer->distils(); }

bool keeps_four_bits(const Plan& plan) {
  return plan.software.trl_acts(plan.trainer->kind == TrainerKind::kto
                                    ? ReleaseRule::trl_keeps_four_bits_in_kto
                                    : ReleaseRule::trl_keeps_four_bits);
}

void resolve_evaluation(Resolver& r) {
  const ExplicitValue* said = r.scenario.find(ScenarioKey::evaluation);
  if (said == nullptr) return;
  if (r.plan.workload.engine == TrainingEngine::embedded) {
    r.not_modelled(ScenarioKey::evaluation, "an evaluation by the embedded runtime");
    return;
  }
  const NamedSettings named = named_settings(said->value);
  EvaluationSettings evaluation;
  evaluation.keeps_logits = named.name == "logits";
  if (named.name == "none" && named.settings == nullptr) return;
  if (distils(r.plan)) {
    r.not_modelled(ScenarioKey::evaluation, "an evaluation by gkd, which runs the teacher, too");
    return;
  }
  if (named.name != "loss" && named.name != "logits") {
    r.problem(said->origin,
              "none, loss, logits, or {\"logits\": {\"batch_size\": 8}}",
              described(said->value));
    return;
  }
  if (named.settings != nullptr) {
    constexpr std::string_view kKeys[] = {"batch_size", "accumulation_steps", "samples"};
    SettingsReader reader(
        r, *named.settings, {said->origin.file, said->origin.pointer + "/" + named.name});
    reader.refuse_others(kKeys);
    reader.read("batch_size", evaluation.batch_size, 1, kMostCount);
    reader.read("accumulation_steps", evaluation.accumulation_steps, 1, kMostCount);
    reader.read("samples", evaluation.samples, 1, kMostCount);
  }
  r.plan.evaluation = std::make_shared<const EvaluationSettings>(evaluation);
}

}  // namespace zeroplan
