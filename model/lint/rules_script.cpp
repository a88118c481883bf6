// Rules that hold the file against what the training script was told; see lint.hpp.
#include <array>

#include "model/lint/run_view.hpp"

namespace zeroplan::rules {
namespace {

// --- the Trainer's arguments

// A file without any "auto" may be of a script without the Trainer, which then follows the file.
void disagree(
    const Run& run, Report& report, Knob knob, const std::string& file, const std::string& said) {
  if (run.is_trainer()) {
    report.at(knob, {quoted(knob), file, said}, 0);
  } else {
    report.as(Severity::warning, knob, {quoted(knob), file, said}, 1);
  }
}

// The product of the Trainer's arguments, with its default of one accumulation step. The file's own
// product is batch-identity's.
void total_mismatch(const Run& run, Report& report) {
  const DsConfig& file = run.file.config();
  const auto total = file.integer(Knob::train_batch_size);
  const auto micro = run.said_integer(ScenarioKey::micro_batch_size);
  if (!total || !micro || !run.file.context().ranks_known) return;
  if (file.integer(Knob::train_micro_batch_size_per_gpu)) return;
  const std::int64_t steps =
      run.said_integer(ScenarioKey::gradient_accumulation_steps)
          .value_or(file.integer(Knob::gradient_accumulation_steps).value_or(1));
  const std::int64_t ranks = run.file.data_parallel();
  if (*total == *micro * steps * ranks) return;
  disagree(run,
           report,
           Knob::train_batch_size,
           std::to_string(*total),
           std::to_string(*micro) + " x " + std::to_string(steps) + " x " + std::to_string(ranks) +
               " = " + std::to_string(*micro * steps * ranks));
}

constexpr std::array kBatchPairs = {
    std::pair{Knob::train_micro_batch_size_per_gpu, ScenarioKey::micro_batch_size},
    std::pair{Knob::gradient_accumulation_steps, ScenarioKey::gradient_accumulation_steps}};

// A script of its own has a data loader, and DeepSpeed the file: neither looks at the other.
void loader_mismatch(const Run& run, Report& report) {
  if (run.is_trainer() || !run.frontend_was_said) return;
  for (const auto& [knob, key] : kBatchPairs) {
    const auto file = run.file.config().integer(knob);
    const auto said = run.said_integer(key);
    if (file && said && *file != *said) {
      report.at(knob, {quoted(knob), std::to_string(*file), std::to_string(*said)});
    }
  }
}

// Source: transformers/integrations/deepspeed.py:HfTrainerDeepSpeedConfig.fill_match.
void trainer_mismatch(const Run& run, Report& report) {
  if (!run.is_trainer() && run.frontend_was_said) return;
  total_mismatch(run, report);
  for (const auto& [knob, key] : kBatchPairs) {
    const auto file = run.file.config().integer(knob);
    const auto said = run.said_integer(key);
    if (file && said && *file != *said) {
      disagree(run, report, knob, std::to_string(*file), std::to_string(*said));
    }
  }
  const auto precision = run.said_text(ScenarioKey::precision);
  if (!precision) return;
  for (const Knob knob : {Knob::fp16_enabled, Knob::bf16_enabled}) {
    const auto file = run.file.config().boolean(knob);
    const bool said = *precision == (knob == Knob::fp16_enabled ? "fp16" : "bf16");
    if (file && *file != said) disagree(run, report, knob, *file ? "true" : "false", *precision);
  }
}

// Names of scenario and file for the same optimizer.
std::string family_of(const std::string& name) {
  return name == "adam" || name == "adamw" ? "adam" : name;
}

void two_optimizers(const Run& run, Report& report) {
  const auto said = run.said_text(ScenarioKey::optimizer);
  const std::string file = run.file.optimizer();
  if (!said || file.empty() || family_of(*said) == family_of(file)) return;
  const bool stops = run.is_trainer() && *said == "adafactor";
  if (stops) {
    report.as(Severity::error, Knob::optimizer_type, {*said}, 1);
  } else {
    report.at(Knob::optimizer_type, {*said, run.file.text(Knob::optimizer_type)}, 0);
  }
}

// accelerate maps what is no Adagrad or Lion to DeepSpeedCPUAdam.
// Source: accelerate/utils/deepspeed.py:map_pytorch_optim_to_deepspeed.
void replaced_optimizer(const Run& run, Report& report) {
  const auto said = run.said_text(ScenarioKey::optimizer);
  if (!run.is_trainer() || !said || !run.file.optimizer().empty() || run.file.stage() == 0) return;
  if (!run.file.is_offloaded(Knob::offload_optimizer_device)) return;
  if (*said != "adafactor" && *said != "sgd" && *said != "adamw8bit") return;
  if (!run.file.config().boolean(Knob::zero_force_ds_cpu_optimizer).value_or(true)) return;
  report.at(Knob::offload_optimizer_device, {*said});
}

// --- method and checkpointing

void quantised_base(const Run& run, Report& report) {
  const ExplicitValue* said = run.scenario.find(ScenarioKey::method);
  if (said == nullptr || run.file.stage() != 3) return;
  const bool qlora = said->value.is_string() ? said->value.as_string() == "qlora"
                                             : said->value.find("qlora") != nullptr;
  if (qlora) report.at(Knob::zero_stage);
}

void third_gather(const Run& run, Report& report) {
  constexpr std::int64_t kShort = 100'000'000;
  if (run.file.stage() != 3) return;
  if (run.said_text(ScenarioKey::activation_checkpointing) != "full") return;
  const auto distance = run.file.config().integer(Knob::stage3_max_reuse_distance);
  if (distance && *distance < kShort) {
    report.at(Knob::stage3_max_reuse_distance, {std::to_string(*distance)});
  }
}

// --- evaluation and prediction

void evaluation_stage(const Run& run, Report& report) {
  if (run.task == RunTask::train || run.file.stage() == 3) return;
  if (run.is_trainer()) {
    report.at(Knob::zero_stage, {std::to_string(run.file.stage())}, 0);
  } else if (run.file.stage() > 0 && run.file.optimizer().empty()) {
    report.at(Knob::zero_stage, {std::to_string(run.file.stage())}, 1);
  }
}

void evaluation_lockstep(const Run& run, Report& report) {
  if (run.task == RunTask::train || run.file.stage() != 3) return;
  report.at(Knob::zero_stage, {}, run.task == RunTask::generate ? 1 : 0);
}

constexpr std::array kScriptRules = {
    RunRule{
        {.code = "trainer-mismatch",
         .severity = Severity::error,
         .use = RuleUse::advice,
         .needs = kNeedsWorkload,
         .summary = "values in the file equal the Trainer's arguments",
         .cost = "the Trainer stops: \"Please correct the following DeepSpeed config values that "
                 "mismatch TrainingArguments\"",
         .texts = {{"{0} is {1} in the file and {2} in the arguments",
                    "write \"auto\" in the file"},
                   {"{0} is {1} in the file and {2} in the arguments: the Trainer stops, a script "
                    "without it follows the file",
                    "write \"auto\" in the file for the Trainer; --frontend says which it is"}},
         .source = "transformers/integrations/deepspeed.py:trainer_config_process; trlx#376, "
                   "LlamaFactory#3224"},
        trainer_mismatch},
    RunRule{
        {.code = "loader-mismatch",
         .use = RuleUse::advice,
         .needs = kNeedsWorkload,
         .summary = "a script without the Trainer has the file's batch sizes",
         .cost = "DeepSpeed scales the loss and counts steps for another batch than the one that "
                 "trains, without a message",
         .texts = {{"{0} is {1} in the file and {2} in the script", "write the same in both"}},
         .source = "runtime/engine.py:_scale_loss_by_gas, is_gradient_accumulation_boundary"},
        loader_mismatch},
    RunRule{{.code = "two-optimizers",
             .use = RuleUse::advice,
             .needs = kNeedsWorkload,
             .summary = "file and arguments name one optimizer",
             .cost = "the file's optimizer is used whatever the arguments say",
             .texts = {{"the arguments ask for {0}, and the file's {1} counts",
                        "remove the section optimizer, or the argument"},
                       {"the Trainer stops when {0} is asked for and the file has an optimizer",
                        "remove the section optimizer"}},
             .source = "transformers/integrations/deepspeed.py:deepspeed_optim_sched"},
            two_optimizers},
    RunRule{
        {.code = "replaced-optimizer",
         .use = RuleUse::advice,
         .needs = kNeedsWorkload,
         .summary = "with offload the Trainer's optimizer is one that DeepSpeed has for the CPU",
         .cost = "another optimizer trains than was asked for, with two fp32 states in host memory",
         .texts = {{"with offload accelerate replaces {0} by DeepSpeed's CPU Adam",
                    "ask for adamw, or do without offload"}},
         .source = "accelerate/utils/deepspeed.py:map_pytorch_optim_to_deepspeed"},
        replaced_optimizer},
    RunRule{
        {.code = "quantised-base-stage3",
         .use = RuleUse::advice,
         .needs = kNeedsWorkload,
         .summary = "a base model in 4 bits is trained with stage 2 or less",
         .cost =
             "the whole model comes to every GPU before it is partitioned; older releases leave it "
             "whole or refuse the combination",
         .texts = {{"stage 3 partitions a base model in 4 bits after all of it came to each GPU; "
                    "seen to run with DeepSpeed 0.19.6, transformers 5.17 and bitsandbytes 0.50.2",
                    "use stage 2, with offload_optimizer where needed, or these releases"}},
         .source = "peft#2016, #1844, transformers#24395, DeepSpeed#3620"},
        quantised_base},
    RunRule{{.code = "third-gather",
             .severity = Severity::info,
             .use = RuleUse::advice,
             .needs = kNeedsWorkload,
             .summary = "with activation checkpointing max_reuse_distance spans a layer",
             .cost = "weights are gathered a third time for the recomputation: 2.5 to 3 times the "
                     "model a micro-step instead of about 1.9",
             .texts = {{"stage3_max_reuse_distance {0} drops weights between recomputation and "
                        "backward pass",
                        "use 1e9 (the default) unless memory is short"}},
             .source = "runtime/zero/partitioned_param_coordinator.py:release_sub_module"},
            third_gather},
    RunRule{
        {.code = "evaluation-stage",
         .severity = Severity::error,
         .use = RuleUse::advice,
         .needs = kNeedsTask,
         .summary = "evaluation and prediction without training run with stage 3, or without ZeRO",
         .cost = "the run stops before the first batch",
         .texts = {{"the Trainer evaluates and predicts with stage 3 only: \"ZeRO inference only "
                    "makes sense with ZeRO Stage 3\"; this is stage {0}",
                    "use stage 3, or run without DeepSpeed where the model fits one GPU"},
                   {"stage {0} needs an optimizer also where nothing is trained",
                    "use stage 0 or 3"}},
         .source = "transformers/integrations/deepspeed.py:deepspeed_init"},
        evaluation_stage},
    RunRule{
        {.code = "evaluation-lockstep",
         .use = RuleUse::advice,
         .needs = kNeedsTask,
         .summary = "under stage 3 all ranks make the same number of forward passes",
         .cost = "ranks that are done leave the others waiting in a gather until NCCL gives up",
         .texts = {{"stage 3 gathers in every forward pass: ranks with fewer batches hang the "
                    "rest",
                    "give every rank the same number of batches (drop or pad the last)"},
                   {"stage 3 gathers in every forward pass: ranks that end their sequences early "
                    "hang the rest",
                    "generate with synced_gpus=True and the same number of batches a rank"}},
         .source = "DeepSpeed#5394"},
        evaluation_lockstep},
};

}  // namespace

std::span<const RunRule> script_rules() { return kScriptRules; }

}  // namespace zeroplan::rules
