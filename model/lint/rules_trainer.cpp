// Rules of TRL's trainers (workload.trainer); see lint.hpp. Sources are files of TRL, by release in
// configs/release_rules.json where it matters.
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "model/lint/run_view.hpp"
#include "model/plan/beside.hpp"
#include "model/plan/trainer.hpp"
#include "model/predict/run_phases.hpp"
#include "model/releases.hpp"
#include "model/step/generation.hpp"

namespace zeroplan::rules {
namespace {

const TrainerSettings* trainer_of(const Run& run) { return run.plan->trainer.get(); }

std::string text(std::int64_t number) { return std::to_string(number); }

void forced_reentrance(const Run& run, Report& report) {
  const ExplicitValue* said = run.scenario.find(ScenarioKey::checkpoint_reentrant);
  if (said == nullptr || said->value.as_boolean() || !forces_reentrance(*run.plan)) return;
  report.at(Knob::zero_stage, {to_string(run.plan->software.trl)});
}

void kto_batch(const Run& run, Report& report) {
  const TrainerSettings* trainer = trainer_of(run);
  if (trainer == nullptr || trainer->kind != TrainerKind::kto) return;
  if (!trainer->compares_mismatched || run.plan->workload.micro_batch_size > 1) return;
  report.at(Knob::train_micro_batch_size_per_gpu);
}

// All sequences of a generation are whole groups of completions of one prompt.
void generation_groups(const Run& run, Report& report) {
  const TrainerSettings* trainer = trainer_of(run);
  if (trainer == nullptr || trainer->kind != TrainerKind::grpo || !trainer->by_trl()) return;
  const std::int64_t group = trainer->generation.completions;
  if (group < 2) {
    report.at(Knob::train_micro_batch_size_per_gpu, {text(group)}, 1);
    return;
  }
  const Plan& plan = *run.plan;
  if (generates_whole_groups(plan)) return;
  report.at(Knob::train_micro_batch_size_per_gpu,
            {text(plan.workload.micro_batch_size),
             text(plan.degrees.data),
             text(generated_batches(plan)),
             text(generated_sequences(plan)),
             text(group)});
}

// exact_div(local_batch_size, num_mini_batches)
void mini_batches(const Run& run, Report& report) {
  const TrainerSettings* trainer = trainer_of(run);
  if (trainer == nullptr || !trainer->trains_values()) return;
  const std::int64_t count = trainer->rollout.mini_batches;
  const std::int64_t samples = samples_of_rollout(*run.plan);
  const std::int64_t micro_batches = run.plan->workload.gradient_accumulation_steps;
  if (samples % count != 0) {
    report.at(Knob::train_micro_batch_size_per_gpu, {text(samples), text(count)});
  } else if (count > 1 && micro_batches > 1) {
    report.as(Severity::warning,
              Knob::gradient_accumulation_steps,
              {text(count), text(micro_batches)},
              1);
  }
}

void optimizer_in_file(const Run& run, Report& report) {
  const TrainerSettings* trainer = trainer_of(run);
  if (trainer == nullptr || !trainer->trains_values()) return;
  if (!run.plan->ds_config.text(Knob::optimizer_type)) return;
  report.at(Knob::optimizer_type);
}

// Stage 3 puts what is trained of a group into one buffer of one format, where the weights are on
// the GPU.
void evaluation_groups(const Run& run, Report& report) {
  const TrainerSettings* trainer = trainer_of(run);
  if (trainer == nullptr || trainer->kind != TrainerKind::grpo || !trainer->by_trl()) return;
  if (run.plan->evaluation == nullptr) return;
  const std::int64_t batch = run.plan->evaluation->batch_size;
  const std::int64_t ranks = run.plan->degrees.data;
  const std::int64_t group = std::max<std::int64_t>(1, trainer->generation.completions);
  if (batch * ranks % group == 0) return;
  report.at(Knob::train_micro_batch_size_per_gpu, {text(batch), text(ranks), text(group)});
}

void server_ranks(const Run& run, Report& report) {
  const TrainerSettings* trainer = trainer_of(run);
  if (trainer == nullptr || !trainer->generates()) return;
  if (trainer->generation.by != GenerationBy::colocated) return;
  const std::int64_t world = run.plan->cluster.total_gpus();
  if (world % trainer->generation.tensor_parallel == 0) return;
  report.at(Knob::zero_stage, {text(trainer->generation.tensor_parallel), text(world)});
}

void reference_with_adapters(const Run& run, Report& report) {
  const Plan& plan = *run.plan;
  const TrainerSettings* trainer = trainer_of(run);
  if (trainer == nullptr || plan.beside == nullptr || plan.workload.method == Method::full) return;
  if (!trainer->by_trl()) return;
  const bool own = std::any_of(
      plan.beside->models.begin(), plan.beside->models.end(), [](const BesideModel& model) {
        return model.role == ModelRole::reference && model.placement != Placement::policy_weights;
      });
  if (!own) return;
  const bool refused = trainer->kind == TrainerKind::dpo &&
                       plan.software.trl_acts(ReleaseRule::trl_refuses_reference_with_adapters);
  report.as(refused ? Severity::error : Severity::info,
            Knob::zero_stage,
            {to_string(plan.software.trl)},
            refused ? 0 : 1);
}

// Generation that does not fit because all weights are there at once, and would in parts.
void gathers_for_generation(const Run& run, Report& report) {
  const Plan& plan = *run.plan;
  if (run.prediction->fits || !generates_itself(plan) || plan.trainer->distils()) return;
  const Bytes gathered = generation_memory(plan).gathered;
  if (gathered == Bytes::zero()) return;
  Plan apart = plan;
  TrainerSettings settings = *plan.trainer;
  settings.generation.gathers_model = false;
  apart.trainer = std::make_shared<const TrainerSettings>(settings);
  if (!run.result_of(apart).fits) return;
  char gibibytes[32];
  std::snprintf(gibibytes, sizeof gibibytes, "%.1f", gathered.gib());
  report.at(Knob::zero_stage, {gibibytes});
}

constexpr std::array kTrainerRules = {
    RunRule{{.code = "trl-reentrant",
             .use = RuleUse::advice,
             .needs = kNeedsPlan,
             .summary = "with adapters at stage 3 nobody asks TRL for use_reentrant=False",
             .cost = "it is not used: TRL 1.9 and later set it to True, which gathers weights in "
                     "another order and may hold frozen ones",
             .texts = {{"TRL {0} sets use_reentrant to True with adapters at stage 3",
                        "leave use_reentrant out of gradient_checkpointing_kwargs"}},
             .source = "trl/trainer/dpo_trainer.py:DPOTrainer.__init__ of 1.9.0; trl#2514"},
            forced_reentrance},
    RunRule{{.code = "trl-kto-batch",
             .severity = Severity::error,
             .use = RuleUse::advice,
             .needs = kNeedsPlan,
             .summary = "KTO's loss with a KL term has micro-batches of two samples or more",
             .cost = "the trainer stops: \"Actual (not effective) batch size must be > 1\"",
             .texts = {{"KTO pairs each prompt with another sample's completion, and a micro-batch "
                        "of 1 has no other",
                        "per_device_train_batch_size 2, or loss_type apo_zero_unpaired"}},
             .source = "trl/trainer/kto_trainer.py:KTOTrainer.__init__ of 0.12.2 to 1.16.0"},
            kto_batch},
    RunRule{{.code = "trl-generation-batch",
             .severity = Severity::error,
             .use = RuleUse::advice,
             .needs = kNeedsPlan,
             .summary = "a generation of GRPO has whole groups of completions, of two or more",
             .cost = "the configuration of the trainer stops: \"generation_batch_size must be "
                     "divisible by num_generations\"",
             .texts = {{"{0} x {1} ranks x {2} micro-batches are {3} sequences, which "
                        "num_generations {4} does not divide",
                        "a micro-batch, steps_per_generation or num_generations that does"},
                       {"num_generations is {0}, and advantages need 2 or more",
                        "num_generations 2 or more"}},
             .source = "trl/trainer/grpo_config.py:GRPOConfig.__post_init__"},
            generation_groups},
    RunRule{{.code = "trl-ppo-mini-batches",
             .severity = Severity::error,
             .use = RuleUse::advice,
             .needs = kNeedsPlan,
             .summary = "num_mini_batches divides the samples of a rollout, and makes no steps",
             .cost = "the trainer stops: \"`local_batch_size` must be a multiple of "
                     "`num_mini_batches`\"; or fewer optimizer steps than one thinks",
             .texts = {{"{0} samples of a rank are no multiple of num_mini_batches {1}",
                        "a micro-batch, gradient_accumulation_steps or num_mini_batches that makes "
                        "them one"},
                       {"num_mini_batches {0} makes no more optimizer steps: the optimizer steps "
                        "after {1} micro-batches, which are a whole epoch",
                        "leave it at 1, or know that it only drops tensors earlier"}},
             .source = "trl/experimental/ppo/ppo_trainer.py:PPOTrainer.__init__, train of 1.10.0; "
                       "accelerate accelerator.py:_do_sync"},
            mini_batches},
    RunRule{
        {.code = "trl-ppo-optimizer",
         .severity = Severity::error,
         .use = RuleUse::advice,
         .needs = kNeedsPlan,
         .summary = "under PPOTrainer the optimizer is the trainer's, not the file's",
         .cost = "accelerate stops: \"You cannot specify an optimizer in the config file and in "
                 "the code at the same time\"",
         .texts = {{"PPOTrainer makes its optimizer, and accelerate refuses a second one here",
                    "take the optimizer out of the file; optim says which"}},
         .source = "trl/experimental/ppo/ppo_trainer.py:PPOTrainer.__init__ of 1.10.0; "
                   "accelerate accelerator.py:_prepare_deepspeed of 1.15.0"},
        optimizer_in_file},
    RunRule{
        {.code = "trl-evaluation-batch",
         .severity = Severity::error,
         .use = RuleUse::advice,
         .needs = kNeedsPlan,
         .summary = "a batch of GRPO's evaluation has whole groups of completions",
         .cost = "the configuration of the trainer stops: \"The global eval batch size must be "
                 "divisible by the number of generations\"",
         .texts = {{"per_device_eval_batch_size {0} on {1} ranks is no multiple of "
                    "num_generations {2}",
                    "a per_device_eval_batch_size, or num_generations_eval, that makes it one"}},
         .source = "trl/trainer/grpo_config.py:GRPOConfig.__post_init__"},
        evaluation_groups},
    RunRule{{.code = "trl-vllm-ranks",
             .severity = Severity::error,
             .use = RuleUse::advice,
             .needs = kNeedsPlan,
             .summary = "vLLM's tensor ranks beside the training divide its GPUs",
             .cost = "the trainer stops: \"vllm_tensor_parallel_size must divide world size\"",
             .texts = {{"vllm_tensor_parallel_size {0} does not divide {1} GPUs",
                        "a vllm_tensor_parallel_size that does"}},
             .source = "trl/trainer/grpo_trainer.py of 0.20.0; "
                       "trl/generation/vllm_generation.py of 0.29.0 and later"},
            server_ranks},
    RunRule{{.code = "trl-reference-with-adapters",
             .severity = Severity::error,
             .use = RuleUse::advice,
             .needs = kNeedsPlan,
             .summary = "with adapters the reference is the trained model without them",
             .cost = "the weights of a second model; DPOTrainer before 0.28 stops",
             .texts = {{"DPOTrainer of TRL {0} refuses ref_model beside adapters",
                        "ref_model=None, or force_use_ref_model=True"},
                       {"a reference of its own stands beside adapters, which TRL could switch off "
                        "instead",
                        "ref_model=None where the reference is the base model"}},
             .source = "trl/trainer/dpo_trainer.py:DPOTrainer.__init__ of 0.24.0 and 0.28.0"},
            reference_with_adapters},
    RunRule{{.code = "trl-gathers-for-generation",
             .use = RuleUse::advice,
             .needs = kNeedsPlan,
             .summary = "the whole model fits on a GPU where it generates at stage 3",
             .cost = "out of memory in the first generation",
             .texts = {{"generation gathers all weights on each GPU, {0} GiB, and without that it "
                        "would fit",
                        "ds3_gather_for_generation=False, which gathers layer by layer for every "
                        "token, or a vLLM server"}},
             .source = "trl/models/utils.py:unwrap_model_for_generation; "
                       "trl/trainer/grpo_config.py:ds3_gather_for_generation"},
            gathers_for_generation},
};

}  // namespace

std::span<const RunRule> trainer_rules() { return kTrainerRules; }

}  // namespace zeroplan::rules
